"""Draws a world with a goal that can be reached in it, and tells how its story begins and ends.

The goal may lie behind a lock, in the dark, or with somebody who wants something else for it. Keys, lights and what
people want lie in the open or in boxes without a lock, so no two of them can wait for each other.
"""

import random

from regard.data.bundled.adventure.game_state import BACK, DOOR, GameState, Goal
from regard.data.bundled.adventure.scenery import SAYINGS, SETTINGS, THINGS, Location, a

STEPS = {"north": (0, 1, 0), "south": (0, -1, 0), "east": (1, 0, 0), "west": (-1, 0, 0)}
STEPS |= {"up": (0, 0, 1), "down": (0, 0, -1)}
GOALS = ("find", "find", "give", "give", "give", "bring", "bring", "reach", "reach", "eat", "read")
WISHES = {
    "find": ("You must find {one} {by}.", "You are looking for {one}, and you must find it {by}."),
    "give": (
        "The {target} has lost {one}, and you have promised to bring it back {by}.",
        "You have promised to find {one} for the {target} {by}.",
    ),
    "bring": ("Somewhere there is {one}, and it belongs {there}. Bring it there {by}.",),
    "reach": ("You must be {there} {by}.", "Somebody waits for you {there}. Be there {by}."),
    "eat": ("You are hungry and dream of {one}. Find and eat it {by}.",),
    "read": ("Somebody has left {one} for you. Find and read it {by}.",),
}
PRAISE = {
    "find": ("You have found the {thing}.", "At last the {thing} is yours."),
    "give": ("You have kept your promise.", "The {target} will never forget you."),
    "bring": ("The {thing} is where it belongs.", "You have brought the {thing} to its place."),
    "reach": ("You have reached the {target}.", "You are where you wanted to be."),
    "eat": ("You are not hungry any more.", "What a meal!"),
    "read": ("Now you know what it says.", "You fold it and smile."),
}
KINDS = {"find": "treasure", "give": "treasure", "bring": "treasure", "eat": "food", "read": "paper"}


def draw(rng: random.Random) -> GameState:
    """A world with its goal; the player stands at the beginning."""
    setting = rng.choice(SETTINGS)
    places = [setting.places[0], *rng.sample(setting.places[1:], rng.choice((2, 2, 3)))]
    ways = connected(places, rng)
    beyond = behind_a_door(places, ways, rng)
    dark = [place.name for place in places if place.dark]
    easy = [place.name for place in places if place.name not in (beyond, *dark)]
    kind = rng.choice([kind for kind in GOALS if beyond or kind != "reach"])
    world = GameState(
        rng,
        setting,
        goal=Goal(kind, target=beyond if kind == "reach" else ""),
        places={place.name: place for place in places},
        ways=ways,
        here=rng.choice(easy),
        people={person: rng.choice(easy) for person in rng.sample(setting.people, 2 if kind == "give" else 1)},
        boxes={box: rng.choice(easy) for box in rng.sample(setting.boxes, 1 if beyond else rng.choice((1, 2)))},
    )
    world.shut.update(world.boxes)
    if beyond:
        (near,) = ways[beyond].values()
        world.door = frozenset((near, beyond))
        world.shut.add(DOOR)
    fill(world, easy, [place for place in (*dark, beyond) if place], rng)
    return world


def connected(places: list[Location], rng: random.Random) -> dict[str, dict[str, str]]:
    """Each place behind an earlier one, no two at the same spot: place -> direction -> place."""
    ways: dict[str, dict[str, str]] = {places[0].name: {}}
    spots = {places[0].name: (0, 0, 0)}
    for place in places[1:]:
        flat = [other.name for other in places if other.name in ways and not (other.way or other.dark)]
        while True:
            near, direction = rng.choice(flat), place.way or rng.choice(("north", "south", "east", "west"))
            x, y, z = (at + step for at, step in zip(spots[near], STEPS[direction], strict=True))
            if (x, y, z) not in spots.values():
                break
        spots[place.name] = (x, y, z)
        ways[near][direction] = place.name
        ways[place.name] = {BACK[direction]: near}
    return ways


def behind_a_door(places: list[Location], ways: dict[str, dict[str, str]], rng: random.Random) -> str:
    """A place at the end of its way, or none."""
    ends = [p.name for p in places[1:] if len(ways[p.name]) == 1 and not (p.way or p.dark)]
    return rng.choice(ends) if ends and rng.random() < 0.4 else ""


def fill(w: GameState, easy: list[str], hard: list[str], rng: random.Random) -> None:
    """Puts things where they can be found: first the one that the story is about."""
    kind, _, target = w.goal
    *others, trader = w.people
    box, *spare = w.boxes
    if kind != "reach":
        thing = put(w, KINDS[kind], rng.choice([*hard, *hard, box, box, trader, rng.choice(easy)]))
        if kind == "give":
            target = others[0]
        elif kind == "bring":
            target = rng.choice([place for place in w.places if place not in (w.where[thing], w.boxes[box])])
        w.goal = Goal(kind, thing, target)
        if w.where[thing] in (*w.places, box) and rng.random() < 0.6:
            w.known.add(thing)
    lock = DOOR if w.door else box
    if rng.random() < 0.75:
        free = w.inside(trader) == [] and rng.random() < 0.4
        w.keys[lock] = put(w, "key", trader if free else rng.choice([*easy, *spare]))
    if w.inside(trader):
        w.wishes[trader] = put(w, rng.choice(("food", "tool")), rng.choice(easy))
    if any(place.dark for place in w.places.values()):
        put(w, "light", rng.choice([*easy, *spare]))
    w.needed = {*w.where}
    for _ in range(rng.choice((1, 2, 2))):
        put(w, rng.choice(("food", "paper", "tool", "tool", "light")), rng.choice([*easy, *easy, *w.boxes]))


def put(w: GameState, kind: str, holder: str) -> str:
    """A new thing; no two in a world share a noun, so that "the lamp" is enough to name it."""
    nouns, adjectives = (words.split() for words in THINGS[kind])
    used = {thing.split()[-1] for thing in w.kinds}
    free = [noun for noun in nouns if noun not in used]
    thing = f"{w.rng.choice(adjectives)} {w.rng.choice(free)}"
    w.kinds[thing], w.where[thing] = kind, holder
    if kind == "paper":
        w.sayings[thing] = w.rng.choice(SAYINGS)
    return thing


def beginning(w: GameState) -> str:
    kind, thing, target = w.goal
    there = w.at(target) if target in w.places else ""
    wish = w.say(*WISHES[kind]).format(thing=thing, one=a(thing), target=target, there=there, by=w.setting.deadline)
    told = [w.say(*w.setting.scene), wish]
    if thing in w.known:
        place = w.at(w.boxes.get(w.where[thing], w.where[thing]))
        told.append(w.say(f"It must be somewhere {place}.", f"You have heard that it is {place}."))
    return " ".join(told)


def ending(w: GameState) -> str:
    if w.won():
        return w.say(*PRAISE[w.goal.kind]).format(thing=w.goal.thing, target=w.goal.target) + " The end."
    return f"{w.setting.late}. {w.say('You are too late.', 'Your time is over.')} The end."
