"""English said in German: the words, the grammar and the sentences of the phrasebook."""
