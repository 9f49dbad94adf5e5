"""Names of languages by their code (ISO 639-1)."""

from __future__ import annotations

NAMES = """
ar Arabic; az Azerbaijani; bg Bulgarian; bn Bengali; ca Catalan; cs Czech; da Danish; de German; el Greek; en English;
eo Esperanto; es Spanish; et Estonian; eu Basque; fa Persian; fi Finnish; fr French; ga Irish; gl Galician; he Hebrew;
hi Hindi; hr Croatian; hu Hungarian; id Indonesian; is Icelandic; it Italian; ja Japanese; ka Georgian; kk Kazakh;
ko Korean; ky Kyrgyz; lb Luxembourgish; lt Lithuanian; lv Latvian; mk Macedonian; ms Malay; nb Norwegian; nl Dutch;
no Norwegian; pl Polish; pt Portuguese; ro Romanian; ru Russian; sk Slovak; sl Slovenian; sq Albanian; sr Serbian;
sv Swedish; sw Swahili; ta Tamil; te Telugu; th Thai; tl Tagalog; tr Turkish; uk Ukrainian; ur Urdu; uz Uzbek;
vi Vietnamese; zh Chinese
"""
LANGUAGES = dict(entry.split(maxsplit=1) for entry in NAMES.strip().split(";"))


def language_name(code: str) -> str:
    """The code itself if it has no name here."""
    return LANGUAGES.get(code.lower(), code)
