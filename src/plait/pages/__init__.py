"""Pages: what plait's HTML pages share: one skeleton, one style, figures, and words in two languages.

A page is one file that needs nothing else; what is on it is for its own package to say.
"""

from plait.pages.bars import Bar, bars
from plait.pages.charts import COLOURS, Line, chart, heat
from plait.pages.page import page, part
from plait.pages.shades import shades
from plait.pages.words import LANGUAGES, Language, Said, Words, in_html

__all__ = [
    "COLOURS",
    "LANGUAGES",
    "Bar",
    "Language",
    "Line",
    "Said",
    "Words",
    "bars",
    "chart",
    "heat",
    "in_html",
    "page",
    "part",
    "shades",
]
