"""The words of the adventure: settings with their places and people, things, and how all of them are said."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    name: str
    at: str  # "in the kitchen", but "on the pier"
    looks: tuple[str, ...]
    way: str = ""  # "up" or "down" where nothing else leads there
    dark: bool = False


class Setting(NamedTuple):
    scene: tuple[str, ...]
    deadline: str
    warning: str
    late: str
    people: tuple[str, ...]
    boxes: tuple[str, ...]
    places: tuple[Place, ...]  # the story begins in the first


HOUSE = Setting(
    ("It is a rainy evening in the old house.", "The old house at the end of the lane is quiet tonight."),
    "before midnight",
    "The clock strikes a quarter to twelve",
    "The clock strikes twelve",
    ("cook", "gardener", "old lady"),
    ("chest", "cupboard", "suitcase"),
    (
        Place("hall", "in", ("Old portraits look down from the walls.", "Your steps echo on the stone floor.")),
        Place("kitchen", "in", ("A kettle sings on the stove.", "It smells of warm soup.")),
        Place("library", "in", ("Books cover every wall.", "A cat sleeps in the armchair.")),
        Place("bedroom", "in", ("The bed is neatly made.", "Rain taps on the window.")),
        Place("garden", "in", ("Wet roses bend over the path.", "A snail crosses the path.")),
        Place("attic", "in", ("Cobwebs hang from the beams.", "The wind moans in the roof."), "up"),
        Place("cellar", "in", ("Barrels stand along the wall.", "It is cold and damp."), "down", dark=True),
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
        Place("courtyard", "in", ("Pigeons walk on the cobbles.", "A fountain splashes in the sun.")),
        Place("throne room", "in", ("The throne shines in the candlelight.", "A long carpet leads to the throne.")),
        Place("stable", "in", ("A white horse looks up from its hay.", "It smells of straw.")),
        Place("chapel", "in", ("Coloured light falls through the windows.", "It is very quiet.")),
        Place("armoury", "in", ("Shields and swords hang in rows.", "A suit of armour guards the corner.")),
        Place("tower", "in", ("You can see the whole valley.", "Swallows nest under the roof."), "up"),
        Place("dungeon", "in", ("Old chains hang from the wall.", "Water drips somewhere."), "down", dark=True),
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
        Place("pier", "on", ("Small boats rock on the waves.", "Nets dry in the sun.")),
        Place("market", "at", ("Baskets of fish stand everywhere.", "Somebody is selling oranges.")),
        Place("inn", "in", ("A fire crackles in the corner.", "Somebody plays the accordion.")),
        Place("boathouse", "in", ("An old boat lies upside down.", "It smells of tar.")),
        Place("beach", "on", ("Crabs hurry over the sand.", "The tide has left white foam.")),
        Place("lighthouse", "in", ("Far below, the sea is green and calm.", "The great light is asleep."), "up"),
        Place("cave", "in", ("The walls are wet and smooth.", "You hear the sea breathe."), dark=True),
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
        Place("clearing", "in", ("Butterflies dance over the grass.", "A deer runs away as you come.")),
        Place("mill", "in", ("The big wheel turns slowly.", "White flour covers everything.")),
        Place("hut", "in", ("Dry herbs hang from the ceiling.", "A small fire burns in the stove.")),
        Place("meadow", "on", ("Bees hum in the clover.", "The grass is as high as your knees.")),
        Place("bridge", "on", ("Trout swim in the clear water.", "The planks creak under your feet.")),
        Place("hilltop", "on", ("You can see as far as the sea.", "A cold wind blows."), "up"),
        Place("mine", "in", ("Wooden posts hold up the roof.", "Something glitters in the rock."), "down", dark=True),
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
        Place("deck", "on", ("The sails are full of wind.", "Dolphins jump beside the ship.")),
        Place("cabin", "in", ("A hammock swings from side to side.", "Charts cover the table.")),
        Place("galley", "in", ("Pots and pans swing from their hooks.", "It smells of onions.")),
        Place("workshop", "in", ("Wood shavings lie on the floor.", "Tools hang in neat rows.")),
        Place("sick bay", "in", ("Clean sheets lie on the bunks.", "Bottles tinkle on a shelf.")),
        Place("crow's nest", "in", ("The deck looks very small from here.", "The mast sways in the wind."), "up"),
        Place("hold", "in", ("Sacks of rice fill the corner.", "A rat runs away."), "down", dark=True),
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
        Place("platform", "on", ("Steam hangs under the lights.", "A pigeon walks up and down.")),
        Place("waiting room", "in", ("The benches are hard but warm.", "A poster shows a sunny beach.")),
        Place("ticket office", "in", ("A fan turns lazily.", "Timetables cover the wall.")),
        Place("café", "in", ("Cups clink behind the counter.", "It smells of coffee.")),
        Place("train", "on", ("The seats are soft and blue.", "The windows are white with frost.")),
        Place("signal box", "in", ("Rows of levers gleam.", "You can see the tracks in the moonlight."), "up"),
        Place("tunnel", "in", ("The rails shine like silver.", "Every sound comes back twice."), dark=True),
    ),
)
SETTINGS = (HOUSE, CASTLE, HARBOUR, FOREST, SHIP, STATION)

THINGS = {  # by kind: nouns, and adjectives that go with them
    "light": ("lamp lantern candle", "brass old small tall"),
    "key": ("key", "rusty brass iron tiny long"),
    "food": ("apple pear pie cake plum sausage bun", "fresh large small sweet"),
    "paper": ("letter book map note postcard", "yellow torn old crumpled"),
    "treasure": ("ring crown necklace pearl coin cup medal", "golden silver tiny precious"),
    "tool": ("rope hammer spoon umbrella brush bucket saw flute drum hat scarf glove", "old red blue green white"),
}
SAYINGS = (
    "Be kind to the cat.",
    "Come home soon, the soup is warm.",
    "Never trust a silent parrot.",
    "The sea keeps its secrets.",
    "Whoever reads this owes me a cake.",
    "All roads lead to breakfast.",
    "Look up more often.",
    "I still have your umbrella.",
)
CHATTER = (
    '"Nice weather for a walk," says the {0}.',
    '"My feet hurt," says the {0}.',
    "The {0} tells you a long story about a goat.",
    '"Good luck to you," says the {0}.',
    "The {0} only hums a tune.",
)
PASTIMES = {  # what leads to nothing
    "sing": ("You sing a little song. Nobody minds.", "You sing. Far away a dog howls."),
    "dance": ("You dance a few steps. It does not help, but it feels good.",),
    "wait": ("Time passes.", "You wait. Nothing happens."),
    "shout": ("You shout. Only an echo answers.",),
    "sleep": ("This is no time to sleep.",),
}


def a(name: str) -> str:
    """With its indefinite article."""
    return f"{'an' if name[:1] in tuple('aeiou') else 'a'} {name}"


def listed(items: Iterable[str], last: str = "and") -> str:
    """As in "a lamp, a rope and a key"."""
    *some, end = items
    return f"{', '.join(some)} {last} {end}" if some else end


def there_is(things: Sequence[str]) -> str:
    return f"There {'is' if len(things) == 1 else 'are'} {listed(map(a, things))}"


def sentence(text: str) -> str:
    return text[0].upper() + text[1:]
