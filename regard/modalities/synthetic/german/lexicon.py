"""The lexicon of the phrasebook without the verbs, and which words make sense together."""

from regard.modalities.synthetic.german.word_forms import Determiner, adjectives, index_by_english, noun, pairs, pronoun

SETS = {  # several groups of nouns under one name
    "person": "people children friends family parents",
    "text": "print writing stories",
    "goods": "clothes vehicles devices furniture luggage",
    "small": "items gifts print",
    "near": "rooms inside shows stops market shore home school",
    "outside": "inside shows stops market shore towns",
    "anywhere": "rooms inside shows stops market shore home school towns",
}
NOUNS = {
    group: tuple(noun(entry, group) for entry in table.split(","))
    for group, table in {
        "people": """man/men der Mann/Männer, woman/women die Frau/Frauen, farmer der Bauer/Bauern/Bauern,
            artist der Künstler/Künstler, waitress die Kellnerin/Kellnerinnen,
            actress die Schauspielerin/Schauspielerinnen""",
        "children": "boy der Junge/Jungen/Jungen, girl das Mädchen/Mädchen, child/children das Kind/Kinder",
        "friends": """friend der Freund/Freunde, neighbour der Nachbar/Nachbarn/Nachbarn, teacher der Lehrer/Lehrer,
            doctor der Arzt/Ärzte, guest der Gast/Gäste, student der Student/Studenten/Studenten""",
        "family": """brother der Bruder/Brüder, sister die Schwester/Schwestern, son der Sohn/Söhne,
            daughter die Tochter/Töchter, uncle der Onkel/Onkel, aunt die Tante/Tanten""",
        "parents": "mother die Mutter, father der Vater, grandmother die Großmutter, grandfather der Großvater",
        "animals": "dog der Hund/Hunde, cat die Katze/Katzen, horse das Pferd/Pferde, bird der Vogel/Vögel",
        "snacks": """apple der Apfel/Äpfel, egg das Ei/Eier, banana die Banane/Bananen, orange die Orange/Orangen,
            tomato/tomatoes die Tomate/Tomaten, cake der Kuchen/Kuchen, pizza die Pizza/Pizzas""",
        "food": "bread das Brot, cheese der Käse, meat das Fleisch, rice der Reis, soup die Suppe, salad der Salat",
        "drinks": """tea der Tee, coffee der Kaffee, water das Wasser, milk die Milch, juice der Saft, wine der Wein,
            beer das Bier, lemonade die Limonade""",
        "dishes": "cup die Tasse/Tassen, glass das Glas/Gläser, bottle die Flasche/Flaschen",
        "print": "book das Buch/Bücher, newspaper die Zeitung/Zeitungen",
        "writing": "letter der Brief/Briefe, poem das Gedicht/Gedichte, report der Bericht/Berichte",
        "stories": "story die Geschichte/Geschichten",
        "openings": "window das Fenster/Fenster, door die Tür/Türen",
        "luggage": "suitcase der Koffer/Koffer, bag die Tasche/Taschen, box die Kiste/Kisten",
        "clothes": """coat der Mantel/Mäntel, dress das Kleid/Kleider, shirt das Hemd/Hemden,
            jumper der Pullover/Pullover, jacket die Jacke/Jacken""",
        "vehicles": "car das Auto/Autos, bike das Fahrrad/Fahrräder",
        "transport": "bus der Bus/Busse, train der Zug/Züge",
        "devices": "lamp die Lampe/Lampen, radio das Radio/Radios, computer der Computer/Computer",
        "furniture": "table der Tisch/Tische, chair der Stuhl/Stühle, bed das Bett/Betten, sofa das Sofa/Sofas",
        "items": """key der Schlüssel/Schlüssel, photo das Foto/Fotos, ticket die Fahrkarte/Fahrkarten,
            knife/knives das Messer/Messer, umbrella der Regenschirm/Regenschirme""",
        "gifts": """flower die Blume/Blumen, ball der Ball/Bälle, present das Geschenk/Geschenke,
            picture das Bild/Bilder""",
        "rooms": "kitchen die Küche/Küchen, room das Zimmer/Zimmer, office das Büro/Büros",
        "inside": """garden der Garten/Gärten, park der Park/Parks, forest der Wald/Wälder, city die Stadt/Städte,
            museum das Museum/Museen, restaurant das Restaurant/Restaurants, hotel das Hotel/Hotels,
            library die Bibliothek/Bibliotheken""",
        "shows": "cinema das Kino/Kinos, theatre das Theater/Theater",
        "stops": "station der Bahnhof/Bahnhöfe, airport der Flughafen/Flughäfen, bridge die Brücke/Brücken",
        "market": "market der Markt/Märkte",
        "shore": "lake der See/Seen, beach der Strand/Strände, sea das Meer/Meere",
        "weather": "sun die Sonne, weather das Wetter",
    }.items()
}

PREPOSITIONS = {  # by group of places: English and German for a place; German for a goal, with its case
    "rooms": ("in", "in", "in", "acc"),
    "inside": ("in", "in", "in", "acc"),
    "shows": ("at", "in", "in", "acc"),
    "stops": ("at", "an", "zu", "dat"),
    "market": ("at", "auf", "auf", "acc"),
    "shore": ("at", "an", "an", "acc"),
}

OWNERS = "my your his her our their"
SINGULAR = {  # determiners of singular nouns by group, repeated by frequency; "-" is none
    **dict.fromkeys(PREPOSITIONS, "the the this"),
    "people": "the the the a a this",
    "children": "the the the a a this",
    "friends": f"the the the a a this {OWNERS}",
    "family": f"the {OWNERS}",
    "parents": f"the {OWNERS}",
    "food": "- - - - the the my your",
    "drinks": "- - - - the the my your",
    "openings": "the the the this",
    "transport": "the the a this",
    "furniture": "the the a a this",
    "rooms": f"the the this {OWNERS}",
    "any": f"the the the a a a this {OWNERS}",
}
PLURAL = {
    **dict.fromkeys(PREPOSITIONS, "the the this"),
    "people": "the the this two three many",
    "children": "the the this two three many",
    "friends": f"the two four {OWNERS}",
    "family": f"the {OWNERS}",
    "openings": "the this two",
    "transport": "the this two",
    "furniture": "the this two four",
    "rooms": "the this",
    "any": f"the the this - - two three four five many {OWNERS}",
}
BARE = Determiner("", "", "", "none", "")
KEIN = Determiner("", "", "kein", "ein", "DET")
POLITE = Determiner("your", "your", "Ihr", "ein", "DET")
DETERMINERS = {"-": BARE} | {
    singular: Determiner(singular, plural, german, pattern, tag)
    for pattern, tag, table in (
        ("der", "DET", "the the d"),
        ("dieser", "DET", "this these dies"),
        ("ein", "DET", "a a ein,my my mein,your your dein,his his sein,her her ihr,our our unser,their their ihr"),
        ("viele", "ADJ", "many many viel"),
        ("none", "NUM", "two two zwei,three three drei,four four vier,five five fünf"),
    )
    for singular, plural, german in (entry.split() for entry in table.split(","))
}

ADJECTIVES = adjectives(
    """old/older alt/älter, young/younger jung/jünger, tall/taller groß/größer, big/bigger groß/größer,
    small/smaller klein/kleiner, little klein, nice/nicer nett/netter, friendly/friendlier freundlich/freundlicher,
    rich/richer reich/reicher, famous/more berühmt/berühmter, new/newer neu/neuer, beautiful/more schön/schöner,
    expensive/more teuer/teurer/teur, cheap/cheaper billig/billiger, heavy/heavier schwer/schwerer,
    long/longer lang/länger, short/shorter kurz/kürzer, interesting/more interessant/interessanter,
    boring/more langweilig/langweiliger, fresh frisch, good/better gut/besser, cold/colder kalt/kälter,
    warm/warmer warm/wärmer, clean/cleaner sauber/sauberer, red rot, blue blau, green grün, black schwarz,
    white weiß, tired müde//müd, happy glücklich, sad traurig, ill krank, hungry hungrig, thirsty durstig"""
)
GROUP_ADJECTIVES = {  # by group of nouns
    "people": "old young tall nice friendly rich famous",
    "children": "little nice friendly tall",
    "friends": "old young tall nice friendly rich famous",
    "family": "young tall nice friendly",
    "parents": "old nice friendly",
    "animals": "old young big small black white",
    "snacks": "big small fresh good",
    "food": "fresh good",
    "drinks": "cold warm good",
    "dishes": "big small old new beautiful clean",
    "print": "old new interesting boring",
    "writing": "long short interesting boring",
    "stories": "long short interesting boring",
    "openings": "big small old new",
    "luggage": "big small old new heavy black red",
    "clothes": "old new warm beautiful expensive cheap red blue green black white",
    "vehicles": "old new beautiful expensive cheap red blue green black",
    "transport": "old new",
    "devices": "old new small expensive cheap",
    "furniture": "old new big small beautiful expensive",
    "items": "old new small",
    "gifts": "big small beautiful",
    "rooms": "big small beautiful clean",
    "inside": "big small old beautiful",
    "shows": "big small old new",
    "stops": "big small old new",
    "market": "big small old",
    "shore": "beautiful",
}
STATES = ("tired", "happy", "sad", "ill", "hungry", "thirsty")  # of persons
OBSTACLES = ("tired", "sad", "ill")  # despite which a person acts
CAUSES: dict[str, tuple[str, ...]] = dict.fromkeys(("schlafen", "bleiben"), ("tired", "ill"))  # why a person acts
CAUSES |= {"essen": ("hungry",), "trinken": ("thirsty",), "any": ("happy", "sad")}
FAULTS, MERITS = {"expensive", "old", "big", "small", "heavy"}, {"cheap", "new", "beautiful", "warm"}  # of goods
EXCESSES = FAULTS | {"long", "short", "boring", "cold", "warm"}  # adjectives that go with "too"

PRONOUN_FORMS = {"I me ich mich mir": 0, "you you du dich dir": 1, "he him er ihn ihm": 2, "she her sie sie ihr": 2}
PRONOUN_FORMS |= {"we us wir uns uns": 3, "they them sie sie ihnen": 3}
PRONOUNS = {forms.split()[0]: pronoun(forms, agreement) for forms, agreement in PRONOUN_FORMS.items()}
GENDERS = {"m": "er ihn ihm", "f": "sie sie ihr", "n": "es es ihm"}
IT = {gender: pronoun(f"it it {german}", 2) for gender, german in GENDERS.items()}
FORMAL = pronoun("you you Sie Sie Ihnen", 3)
WHO = pronoun("who who wer wen wem", 2)
WHAT = pronoun("what what was was was", 2)
NAMES = {
    name: pronoun(" ".join([name] * 5), 2, "PROPN", "definite")._replace(pronoun=pronoun_of)
    for pronoun_of, names in (("he", "Paul Peter Lukas Max"), ("she", "Anna Maria Emma Julia"))
    for name in names.split()
}

TIMES = {  # by tense
    "now": pairs("now/ADV = jetzt/ADV, today/NOUN = heute/ADV"),
    "habit": pairs("""every/DET day/NOUN = jeden/DET Tag/NOUN, every/DET evening/NOUN = jeden/DET Abend/NOUN,
        every/DET morning/NOUN = jeden/DET Morgen/NOUN, every/DET week/NOUN = jede/DET Woche/NOUN"""),
    "future": pairs("""tomorrow/NOUN = morgen/ADV, this/DET evening/NOUN = heute/ADV Abend/NOUN,
        next/ADJ week/NOUN = nächste/ADJ Woche/NOUN, in/ADP summer/NOUN = im/ADP Sommer/NOUN,
        on/ADP Monday/PROPN = am/ADP Montag/NOUN, on/ADP Sunday/PROPN = am/ADP Sonntag/NOUN"""),
    "past": pairs("""yesterday/NOUN = gestern/ADV, last/ADJ week/NOUN = letzte/ADJ Woche/NOUN,
        last/ADJ summer/NOUN = letzten/ADJ Sommer/NOUN, yesterday/NOUN evening/NOUN = gestern/ADV Abend/NOUN"""),
}
OFTEN = pairs("always/ADV = immer/ADV, often/ADV = oft/ADV, sometimes/ADV = manchmal/ADV, usually/ADV = meistens/ADV")
NEVER, ALREADY = pairs("never/ADV = nie/ADV, already/ADV = schon/ADV")
(PLEASE,) = pairs("please/INTJ = bitte/INTJ")
DEGREES = index_by_english("very/ADV = sehr/ADV, too/ADV = zu/ADV")
CONJUNCTIONS = index_by_english("""that/SCONJ = dass/SCONJ, whether/SCONJ = ob/SCONJ, because/SCONJ = weil/SCONJ,
    although/SCONJ = obwohl/SCONJ, if/SCONJ = wenn/SCONJ""")
QUESTION_WORDS = pairs("where/ADV = wo/ADV, where/ADV = wohin/ADV, when/ADV = wann/ADV, why/ADV = warum/ADV")
QUESTIONS = dict(zip(("place", "goal", "time", "reason"), QUESTION_WORDS, strict=True))
MANNERS = index_by_english("""early/ADV = früh/ADV, late/ADV = spät/ADV, quickly/ADV = schnell/ADV,
    slowly/ADV = langsam/ADV, loudly/ADV = laut/ADV, quietly/ADV = leise/ADV""")
VEHICLES = pairs("""by/ADP bus/NOUN = mit/ADP dem/DET Bus/NOUN, by/ADP train/NOUN = mit/ADP dem/DET Zug/NOUN,
    by/ADP car/NOUN = mit/ADP dem/DET Auto/NOUN, by/ADP bike/NOUN = mit/ADP dem/DET Fahrrad/NOUN,
    by/ADP taxi/NOUN = mit/ADP dem/DET Taxi/NOUN""")
TOWNS = pairs(
    "Berlin/PROPN = Berlin/PROPN, Hamburg/PROPN = Hamburg/PROPN, Vienna/PROPN = Wien/PROPN, Rome/PROPN = Rom/PROPN"
)
FIXED_PLACES = {  # place, goal
    "home": pairs("at/ADP home/NOUN = zu/ADP Hause/NOUN, home/ADV = nach/ADP Hause/NOUN"),
    "school": pairs("at/ADP school/NOUN = in/ADP der/DET Schule/NOUN, to/ADP school/NOUN = in/ADP die/DET Schule/NOUN"),
}
SPOTS = pairs("""on/ADP = auf/ADP, under/ADP = unter/ADP, next/ADV to/ADP = neben/ADP, behind/ADP = hinter/ADP,
    in/ADP front/NOUN of/ADP = vor/ADP""")
CONTRACTIONS = {("in", "dem"): "im", ("in", "das"): "ins", ("an", "dem"): "am", ("an", "das"): "ans"}
CONTRACTIONS |= {("zu", "dem"): "zum", ("zu", "der"): "zur", ("von", "dem"): "vom"}
