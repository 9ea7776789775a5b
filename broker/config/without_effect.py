"""All properties of Apache Kafka's brokers that a node accepts without effect.

A file of Kafka may contain them, and clients may set those that are dynamic. Their values are checked, stored and
described. The values of other properties of Kafka take effect: `odradek.broker.config.properties`.
"""

from dataclasses import replace
from itertools import chain
from typing import Final

from odradek.broker.config.absent_features import ABSENT_FEATURES
from odradek.broker.config.absent_parts import ABSENT_PARTS, NO_CLASSES
from odradek.broker.config.property import Property

WITHOUT_EFFECT: Final[dict[str, Property]] = {
    prop.name: replace(prop, doc=reason, fixed=reason if reason == NO_CLASSES else "")
    for reason, properties in chain(ABSENT_PARTS.items(), ABSENT_FEATURES.items())
    for prop in properties
}
"""Each such property by name. Its documentation is the reason why it has no effect.

A class has an effect in Kafka on what clients may do. So another class than the default is refused.
"""
