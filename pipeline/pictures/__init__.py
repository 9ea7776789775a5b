"""Style of all pictures and of all pages with results: palette, font, sizes, light and dark color scheme."""
