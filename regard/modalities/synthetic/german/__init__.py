"""The bilingual grammar of the phrasebook: words, clauses and sentences."""
