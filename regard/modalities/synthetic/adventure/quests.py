"""Draws text adventures whose goal can be reached, and writes their introductions and conclusions.

The goal may be behind a lock, in the dark, or with a person who wants another thing in exchange. Keys, lights and
wanted things are always accessible or in unlocked boxes, so that no two of them can require each other.
"""

import random

from regard.modalities.synthetic.adventure.game_state import DOOR, OPPOSITE, GameState, Goal
from regard.modalities.synthetic.adventure.scenery import SAYINGS, SETTINGS, THINGS, Location, with_article

OFFSETS = {"north": (0, 1, 0), "south": (0, -1, 0), "east": (1, 0, 0), "west": (-1, 0, 0)}
OFFSETS |= {"up": (0, 0, 1), "down": (0, 0, -1)}
GOALS = ("find", "find", "give", "give", "give", "bring", "bring", "reach", "reach", "eat", "read")
INTRODUCTIONS = {
    "find": ("You must find {a_thing} {by}.", "You are looking for {a_thing}, and you must find it {by}."),
    "give": (
        "The {target} has lost {a_thing}, and you have promised to bring it back {by}.",
        "You have promised to find {a_thing} for the {target} {by}.",
    ),
    "bring": ("Somewhere there is {a_thing}, and it belongs {target_place}. Bring it there {by}.",),
    "reach": ("You must be {target_place} {by}.", "Somebody waits for you {target_place}. Be there {by}."),
    "eat": ("You are hungry and dream of {a_thing}. Find and eat it {by}.",),
    "read": ("Somebody has left {a_thing} for you. Find and read it {by}.",),
}
CONCLUSIONS = {
    "find": ("You have found the {thing}.", "At last the {thing} is yours."),
    "give": ("You have kept your promise.", "The {target} will never forget you."),
    "bring": ("The {thing} is where it belongs.", "You have brought the {thing} to its place."),
    "reach": ("You have reached the {target}.", "You are where you wanted to be."),
    "eat": ("You are not hungry any more.", "What a meal!"),
    "read": ("Now you know what it says.", "You fold it and smile."),
}
THING_KINDS = {"find": "treasure", "give": "treasure", "bring": "treasure", "eat": "food", "read": "paper"}


def draw_quest(rng: random.Random) -> GameState:
    """The initial state of a game, with its goal."""
    setting = rng.choice(SETTINGS)
    places = [setting.locations[0], *rng.sample(setting.locations[1:], rng.choice((2, 2, 3)))]
    exits = connect(places, rng)
    beyond = choose_door(places, exits, rng)
    dark = [place.name for place in places if place.dark]
    easy = [place.name for place in places if place.name not in (beyond, *dark)]
    kind = rng.choice([kind for kind in GOALS if beyond or kind != "reach"])
    world = GameState(
        rng,
        setting,
        goal=Goal(kind, target=beyond if kind == "reach" else ""),
        locations={place.name: place for place in places},
        exits=exits,
        location=rng.choice(easy),
        people={person: rng.choice(easy) for person in rng.sample(setting.people, 2 if kind == "give" else 1)},
        boxes={box: rng.choice(easy) for box in rng.sample(setting.boxes, 1 if beyond else rng.choice((1, 2)))},
    )
    world.closed.update(world.boxes)
    if beyond:
        (near,) = exits[beyond].values()
        world.door = frozenset((near, beyond))
        world.closed.add(DOOR)
    place_things(world, easy, [place for place in (*dark, beyond) if place], rng)
    return world


def connect(places: list[Location], rng: random.Random) -> dict[str, dict[str, str]]:
    """Connects each location to an earlier one, no two at the same coordinates: location -> direction -> location."""
    exits: dict[str, dict[str, str]] = {places[0].name: {}}
    coordinates = {places[0].name: (0, 0, 0)}
    for place in places[1:]:
        flat = [p.name for p in places if p.name in exits and not (p.direction or p.dark)]
        while True:
            near, direction = rng.choice(flat), place.direction or rng.choice(("north", "south", "east", "west"))
            x, y, z = (start + step for start, step in zip(coordinates[near], OFFSETS[direction], strict=True))
            if (x, y, z) not in coordinates.values():
                break
        coordinates[place.name] = (x, y, z)
        exits[near][direction] = place.name
        exits[place.name] = {OPPOSITE[direction]: near}
    return exits


def choose_door(places: list[Location], exits: dict[str, dict[str, str]], rng: random.Random) -> str:
    """The location behind the door: a dead end, or "" for no door."""
    ends = [p.name for p in places[1:] if len(exits[p.name]) == 1 and not (p.direction or p.dark)]
    return rng.choice(ends) if ends and rng.random() < 0.4 else ""


def place_things(w: GameState, easy: list[str], hard: list[str], rng: random.Random) -> None:
    """Creates the thing of the goal, then everything that it requires, then others."""
    kind, _, target = w.goal
    *clients, trader = w.people
    box, *spare = w.boxes
    if kind != "reach":
        thing = create_thing(w, THING_KINDS[kind], rng.choice([*hard, *hard, box, box, trader, rng.choice(easy)]))
        if kind == "give":
            target = clients[0]
        elif kind == "bring":
            target = rng.choice([place for place in w.locations if place not in (w.holders[thing], w.boxes[box])])
        w.goal = Goal(kind, thing, target)
        if w.holders[thing] in (*w.locations, box) and rng.random() < 0.6:
            w.known_things.add(thing)
    lock = DOOR if w.door else box
    if rng.random() < 0.75:
        free = w.contents(trader) == [] and rng.random() < 0.4
        w.keys[lock] = create_thing(w, "key", trader if free else rng.choice([*easy, *spare]))
    if w.contents(trader):
        w.requests[trader] = create_thing(w, rng.choice(("food", "tool")), rng.choice(easy))
    if any(place.dark for place in w.locations.values()):
        create_thing(w, "light", rng.choice([*easy, *spare]))
    w.useful_things = {*w.holders}
    for _ in range(rng.choice((1, 2, 2))):
        create_thing(w, rng.choice(("food", "paper", "tool", "tool", "light")), rng.choice([*easy, *easy, *w.boxes]))


def create_thing(w: GameState, kind: str, holder: str) -> str:
    """A new thing with a noun of its own, so that "the lamp" is unambiguous."""
    nouns, adjectives = (words.split() for words in THINGS[kind])
    used = {thing.split()[-1] for thing in w.kinds}
    free = [noun for noun in nouns if noun not in used]
    thing = f"{w.rng.choice(adjectives)} {w.rng.choice(free)}"
    w.kinds[thing], w.holders[thing] = kind, holder
    if kind == "paper":
        w.paper_texts[thing] = w.rng.choice(SAYINGS)
    return thing


def introduction(w: GameState) -> str:
    kind, thing, target = w.goal
    target_place = w.location_phrase(target) if target in w.locations else ""
    names = {"thing": thing, "a_thing": with_article(thing), "target": target, "target_place": target_place}
    goal = w.choice(*INTRODUCTIONS[kind]).format(**names, by=w.setting.deadline)
    sentences = [w.choice(*w.setting.scenes), goal]
    if thing in w.known_things:
        place = w.location_phrase(w.boxes.get(w.holders[thing], w.holders[thing]))
        sentences.append(w.choice(f"It must be somewhere {place}.", f"You have heard that it is {place}."))
    return " ".join(sentences)


def conclusion(w: GameState) -> str:
    if w.is_won():
        return w.choice(*CONCLUSIONS[w.goal.kind]).format(thing=w.goal.thing, target=w.goal.target) + " The end."
    return f"{w.setting.too_late}. {w.choice('You are too late.', 'Your time is over.')} The end."
