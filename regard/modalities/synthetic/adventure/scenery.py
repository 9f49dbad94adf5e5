"""The vocabulary of the text adventure: settings with their locations and people, things, and phrases."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Location(NamedTuple):
    name: str
    preposition: str  # "in the kitchen", but "on the pier"
    descriptions: tuple[str, ...]
    direction: str = ""  # "up" or "down" if it is reached only that way
    dark: bool = False


class Setting(NamedTuple):
    scenes: tuple[str, ...]
    deadline: str
    warning: str
    too_late: str
    people: tuple[str, ...]
    boxes: tuple[str, ...]
    locations: tuple[Location, ...]  # all others connect to the first


HOUSE = Setting(
    ("It is a rainy evening in the old house.", "The old house at the end of the lane is quiet tonight."),
    "before midnight",
    "The clock strikes a quarter to twelve",
    "The clock strikes twelve",
    ("cook", "gardener", "old lady"),
    ("chest", "cupboard", "suitcase"),
    (
        Location("hall", "in", ("Old portraits look down from the walls.", "Your steps echo on the stone floor.")),
        Location("kitchen", "in", ("A kettle sings on the stove.", "It smells of warm soup.")),
        Location("library", "in", ("Books cover every wall.", "A cat sleeps in the armchair.")),
        Location("bedroom", "in", ("The bed is neatly made.", "Rain taps on the window.")),
        Location("garden", "in", ("Wet roses bend over the path.", "A snail crosses the path.")),
        Location("attic", "in", ("Cobwebs hang from the beams.", "The wind moans in the roof."), "up"),
        Location("cellar", "in", ("Barrels stand along the wall.", "It is cold and damp."), "down", dark=True),
    ),
)
CASTLE = Setting(
    ("The castle stands high above the valley.", "Flags fly over the castle, for today is a feast."),
    "before the feast begins",
    "Trumpets sound in the distance",
    "The feast begins without you",
    ("queen", "knight", "jester"),
    ("chest", "trunk", "wooden box"),
    (
        Location("courtyard", "in", ("Pigeons walk on the cobbles.", "A fountain splashes in the sun.")),
        Location("throne room", "in", ("The throne shines in the candlelight.", "A long carpet leads to the throne.")),
        Location("stable", "in", ("A white horse looks up from its hay.", "It smells of straw.")),
        Location("chapel", "in", ("Coloured light falls through the windows.", "It is very quiet.")),
        Location("armoury", "in", ("Shields and swords hang in rows.", "A suit of armour guards the corner.")),
        Location("tower", "in", ("You can see the whole valley.", "Swallows nest under the roof."), "up"),
        Location("dungeon", "in", ("Old chains hang from the wall.", "Water drips somewhere."), "down", dark=True),
    ),
)
HARBOUR = Setting(
    ("Gulls cry over the little harbour.", "It is a bright morning in the fishing village."),
    "before the ship sails",
    "The ship's bell rings for the first time",
    "The ship sails without you",
    ("fisherman", "innkeeper", "captain"),
    ("crate", "sea chest", "tin box"),
    (
        Location("pier", "on", ("Small boats rock on the waves.", "Nets dry in the sun.")),
        Location("market", "at", ("Baskets of fish stand everywhere.", "Somebody is selling oranges.")),
        Location("inn", "in", ("A fire crackles in the corner.", "Somebody plays the accordion.")),
        Location("boathouse", "in", ("An old boat lies upside down.", "It smells of tar.")),
        Location("beach", "on", ("Crabs hurry over the sand.", "The tide has left white foam.")),
        Location("lighthouse", "in", ("Far below, the sea is green and calm.", "The great light is asleep."), "up"),
        Location("cave", "in", ("The walls are wet and smooth.", "You hear the sea breathe."), dark=True),
    ),
)
FOREST = Setting(
    ("The forest is full of birdsong.", "A path leads deep into the forest."),
    "before the sun goes down",
    "The sun touches the treetops",
    "The sun goes down",
    ("miller", "hunter", "hermit"),
    ("chest", "cupboard", "wooden box"),
    (
        Location("clearing", "in", ("Butterflies dance over the grass.", "A deer runs away as you come.")),
        Location("mill", "in", ("The big wheel turns slowly.", "White flour covers everything.")),
        Location("hut", "in", ("Dry herbs hang from the ceiling.", "A small fire burns in the stove.")),
        Location("meadow", "on", ("Bees hum in the clover.", "The grass is as high as your knees.")),
        Location("bridge", "on", ("Trout swim in the clear water.", "The planks creak under your feet.")),
        Location("hilltop", "on", ("You can see as far as the sea.", "A cold wind blows."), "up"),
        Location("mine", "in", ("Wooden posts hold up the roof.", "Something glitters in the rock."), "down", True),
    ),
)
SHIP = Setting(
    ("The old ship rolls gently on the waves.", "For three weeks you have seen nothing but the sea."),
    "before the storm comes",
    "Black clouds fill half the sky",
    "The storm breaks loose",
    ("captain", "sailor", "ship's boy"),
    ("locker", "sea chest", "tin box"),
    (
        Location("deck", "on", ("The sails are full of wind.", "Dolphins jump beside the ship.")),
        Location("cabin", "in", ("A hammock swings from side to side.", "Charts cover the table.")),
        Location("galley", "in", ("Pots and pans swing from their hooks.", "It smells of onions.")),
        Location("workshop", "in", ("Wood shavings lie on the floor.", "Tools hang in neat rows.")),
        Location("sick bay", "in", ("Clean sheets lie on the bunks.", "Bottles tinkle on a shelf.")),
        Location("crow's nest", "in", ("The deck looks very small from here.", "The mast sways in the wind."), "up"),
        Location("hold", "in", ("Sacks of rice fill the corner.", "A rat runs away."), "down", dark=True),
    ),
)
STATION = Setting(
    ("Snow falls on the small railway station.", "The railway station is almost empty tonight."),
    "before the last train leaves",
    "A whistle blows",
    "The last train leaves without you",
    ("conductor", "porter", "old traveller"),
    ("locker", "suitcase", "trunk"),
    (
        Location("platform", "on", ("Steam hangs under the lights.", "A pigeon walks up and down.")),
        Location("waiting room", "in", ("The benches are hard but warm.", "A poster shows a sunny beach.")),
        Location("ticket office", "in", ("A fan turns lazily.", "Timetables cover the wall.")),
        Location("café", "in", ("Cups clink behind the counter.", "It smells of coffee.")),
        Location("train", "on", ("The seats are soft and blue.", "The windows are white with frost.")),
        Location("signal box", "in", ("Rows of levers gleam.", "You can see the tracks in the moonlight."), "up"),
        Location("tunnel", "in", ("The rails shine like silver.", "Every sound comes back twice."), dark=True),
    ),
)
SETTINGS = (HOUSE, CASTLE, HARBOUR, FOREST, SHIP, STATION)

THINGS = {  # by kind: nouns, and adjectives that fit them
    "light": ("lamp lantern candle", "brass old small tall"),
    "key": ("key", "rusty brass iron tiny long"),
    "food": ("apple pear pie cake plum sausage bun", "fresh large small sweet"),
    "paper": ("letter book map note postcard", "yellow torn old crumpled"),
    "treasure": ("ring crown necklace pearl coin cup medal", "golden silver tiny precious"),
    "tool": ("rope hammer spoon umbrella brush bucket saw flute drum hat scarf glove", "old red blue green white"),
}
SAYINGS = (
    *("Be kind to the cat.", "Come home soon, the soup is warm.", "Never trust a silent parrot."),
    *("The sea keeps its secrets.", "Whoever reads this owes me a cake.", "All roads lead to breakfast."),
    *("Look up more often.", "I still have your umbrella."),
)
CHATTER = (
    *('"Nice weather for a walk," says the {0}.', '"My feet hurt," says the {0}.'),
    *("The {0} tells you a long story about a goat.", '"Good luck to you," says the {0}.', "The {0} only hums a tune."),
)
PASTIMES = {  # commands without effect
    "sing": ("You sing a little song. Nobody minds.", "You sing. Far away a dog howls."),
    "dance": ("You dance a few steps. It does not help, but it feels good.",),
    "wait": ("Time passes.", "You wait. Nothing happens."),
    "shout": ("You shout. Only an echo answers.",),
    "sleep": ("This is no time to sleep.",),
}


def with_article(name: str) -> str:
    """With its indefinite article."""
    return f"{'an' if name[:1] in tuple('aeiou') else 'a'} {name}"


def join_items(items: Iterable[str]) -> str:
    """As in "a lamp, a rope and a key"."""
    *rest, last = items
    return f"{', '.join(rest)} and {last}" if rest else last


def there_is(things: Sequence[str]) -> str:
    return f"There {'is' if len(things) == 1 else 'are'} {join_items(map(with_article, things))}"


def capitalize(text: str) -> str:
    return text[0].upper() + text[1:]
