"""Operations of command-line tools: topics, configurations, groups, offsets, transactions, cluster status."""
