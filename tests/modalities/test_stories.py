"""An independent reader tracks the game by its text and confirms every answer."""

import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.modalities.synthetic.adventure.actions import ACTIONS, Command, execute
from regard.modalities.synthetic.adventure.game_state import GONE
from regard.modalities.synthetic.adventure.player import Player
from regard.modalities.synthetic.adventure.quests import draw_quest
from regard.modalities.synthetic.stories import split, stories

BACK = {"north": "south", "south": "north", "east": "west", "west": "east", "up": "down", "down": "up"}
VERBS = {
    "go": "go|walk", "look": "look( around)?$", "inventory": "inventory|what do I have", "take": "take|get|pick up",
    "drop": "drop|put down", "open": "open", "light": "light", "give": "give", "talk": "talk to|ask",
    "examine": "look at|examine", "read": "read", "eat": "eat", "idle": "sing|dance|wait|shout|sleep",
}  # fmt: skip
REFUSALS = re.compile(
    r"^(You cannot [^.]+: [^.]+\.|No way leads \w+ from here\.|There is no [^.]+ here\.|You see no [^.]+ here\."
    r"|You already have|You do not have the|The [^.]+ is already (open|burning)\.|The [^.]+ is not here\."
    r"|The [^.]+ is locked(,|\. You need)|It is too dark to read|The [^.]+ does not want|\"No, thank you,\""
    r"|The [^.]+ would not like that)"
)
DARK = {"cellar", "dungeon", "cave", "mine", "hold", "tunnel"}
WARNING = ": three turns are left."


@pytest.fixture(scope="module")
def all_stories() -> list[str]:
    return stories()


def items(text: str) -> list[str]:
    return [re.sub("^an? ", "", item) for item in re.split(", | and ", text)]


class Reader:
    """Keeps track of a story by its text alone."""

    def __init__(self, story: str):
        self.opening, first, *self.turns, self.ending = story.split("\n")
        self.carried: list[str] = []
        self.floor: dict[str, list[str]] = {}  # place -> things
        self.boxes: dict[str, tuple[str, list[str] | None]] = {}  # box -> place, what is inside if it is open
        self.people: dict[str, str] = {}
        self.exits: dict[str, dict[str, str]] = {}
        self.burning: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.location, self.dark = "", False
        self.arrive(first)

    def follow(self) -> None:
        for command, answer in zip(self.turns[::2], self.turns[1::2], strict=True):
            assert command.startswith("> ")
            words = command[2:]
            (verb,) = (name for name, form in VERBS.items() if re.match(f"({form})( |$)", words))
            what = re.sub(f"^({VERBS[verb]}) (the )?", "", words)
            try:
                self.turn(verb, what, answer)
            except AssertionError as error:
                raise AssertionError(f"{command}\n{answer}\n\n{self.opening}\n" + "\n".join(self.turns)) from error

    def turn(self, verb: str, what: str, answer: str) -> None:
        if REFUSALS.match(answer):
            self.refused[verb] += 1
        possible = getattr(self, verb)(what, answer)
        assert possible != bool(REFUSALS.match(answer)), "what can be done is done, and nothing else"

    def visible(self) -> list[str]:
        if self.dark:
            return []
        inside = [thing for place, things in self.boxes.values() if place == self.location for thing in things or []]
        return [*self.floor[self.location], *inside]

    def full(self, what: str, among: list[str]) -> str:
        """The player may say "lamp" for "brass lamp"."""
        return next((thing for thing in among if what in (thing, thing.split()[-1])), "")

    def arrive(self, text: str) -> None:
        place = re.match("You are (?:back |again )?(?:in|on|at) the ([^.]+)", text).group(1)
        self.location, self.dark = place, "dark" in text
        for direction, target in re.findall(
            r"(\w+) is the (?:open door to the )?([\w' é]+?)(?=[.,]| and \w+ is)", text
        ):
            exits = self.exits.setdefault(place, {})
            assert exits.setdefault(direction.lower(), target) == target
            assert self.exits.setdefault(target, {}).setdefault(BACK[direction.lower()], place) == place
        if closed := re.search(r"A closed door is in the (\w+)", text):
            self.exits.setdefault(place, {})[closed.group(1)] = "?"
        assert self.dark == (place in DARK and self.burning.isdisjoint((*self.carried, *self.floor.get(place, ()))))
        if self.dark:
            return
        match = re.search(r"(?<!box )(?<!\w )You see ([^.]+)\.|There (?:is|are) ([^.]+) here\.", text)
        things = items(match.group(1) or match.group(2)) if match else []
        assert sorted(self.floor.setdefault(place, things)) == sorted(things)
        boxes: dict[str, list[str] | None] = dict.fromkeys(re.findall("A closed ([^.]+) stands here", text))
        boxes |= {box: [] for box in re.findall("The ([^.]+) is open and empty", text)}
        boxes |= {box: items(inside) for box, inside in re.findall("In the open ([^.]+) you see ([^.]+)", text)}
        people = re.findall("The ([^.]+) (?:is here|nods at you|sits here)", text)
        if place in {where for where, _ in self.boxes.values()} | {*self.people.values()}:
            assert {box: inside for box, (where, inside) in self.boxes.items() if where == place} == boxes
            assert {person for person, where in self.people.items() if where == place} == {*people}
        self.boxes |= {box: (place, inside) for box, inside in boxes.items()}
        self.people |= dict.fromkeys(people, place)

    def look(self, what: str, answer: str) -> bool:
        self.arrive(answer)
        return True

    def inventory(self, what: str, answer: str) -> bool:
        listed = re.match(r"You have ([^.]+)\.", answer).group(1)
        assert (items(listed) if listed != "nothing" else []) == self.carried
        return True

    def go(self, direction: str, answer: str) -> bool:
        target = self.exits[self.location].get(direction)
        if target in (None, "?"):
            assert target is None or "door is closed" in answer
            return False
        before = self.location
        self.arrive(answer)
        assert self.location == target
        assert self.exits[target][BACK[direction]] == before
        return True

    def take(self, what: str, answer: str) -> bool:
        thing = self.full(what, self.visible())
        if not thing:
            assert ("already have" in answer) == bool(self.full(what, self.carried))
            assert ("too dark" in answer) <= self.dark
            return False
        assert f"the {thing}." in answer
        for things in (self.floor[self.location], *(inside for _, inside in self.boxes.values() if inside)):
            if thing in things:
                things.remove(thing)
        self.carried.append(thing)
        return True

    def drop(self, what: str, answer: str) -> bool:
        if not (thing := self.full(what, self.carried)):
            return False
        self.carried.remove(thing)
        self.floor.setdefault(self.location, []).append(thing)
        return True

    def open(self, what: str, answer: str) -> bool:
        key = self.full("key", self.carried)
        if "is locked" in answer:
            assert not key
            return False
        if turned := re.match(r"You unlock the [^.]+ with the ([\w ]+),|The ([\w ]+) turns in the lock", answer):
            assert key in turned.groups()
        if what == "door":
            closed = [direction for direction, target in self.exits[self.location].items() if target == "?"]
            for direction in closed:
                self.exits[self.location][direction] = beyond = re.search(
                    r"door (?:opens )?to the ([^.]+)\.", answer
                ).group(1)
                self.exits.setdefault(beyond, {})[BACK[direction]] = self.location
            return bool(closed)
        place, inside = self.boxes.get(what, ("", []))
        if place != self.location or inside is not None:
            return False
        match = re.search(r"There (?:is|are) ([^.]+) inside", answer)
        self.boxes[what] = (place, items(match.group(1)) if match else [])
        return True

    def light(self, what: str, answer: str) -> bool:
        thing = self.full(what, self.carried)
        if not thing or thing in self.burning or "no lamp" in answer:
            return False
        assert f"he {thing} burns" in answer or f"You light the {thing}." in answer
        self.burning.add(thing)
        if self.dark:
            self.arrive(answer[answer.index("You are") :])
            assert not self.dark
        return True

    def give(self, what: str, answer: str) -> bool:
        what, person = what.split(" to the ")
        thing = self.full(what, self.carried)
        if not thing or self.people.get(person) != self.location:
            return False
        if "want" in answer or "No, thank" in answer:
            return False
        self.carried.remove(thing)
        if reward := re.search(r"gives you the ([^.]+)\.", answer):
            self.carried.append(reward.group(1))
        return True

    def talk(self, person: str, answer: str) -> bool:
        return self.people.get(person) == self.location and not self.dark

    def idle(self, what: str, answer: str) -> bool:
        return True

    def examine(self, what: str, answer: str) -> bool:
        thing = self.full(what, [*self.carried, *self.visible()])
        if thing and "burning" in answer:
            assert ("not burning" in answer) == (thing not in self.burning)
        return bool(thing) or self.boxes.get(what, ("", None))[0] == self.location

    def read(self, what: str, answer: str) -> bool:
        return bool(self.full(what, self.carried)) and " says: " in answer

    def eat(self, what: str, answer: str) -> bool:
        thing = self.full(what, self.carried)
        if not thing or "not food" in answer:
            return False
        assert answer.startswith(f"You eat the {thing}.")
        self.carried.remove(thing)
        return True


def test_6_000_stories_are_all_different_and_of_80_to_250_words(all_stories: list[str]) -> None:
    assert len({*all_stories}) == len(all_stories) == 6_000
    assert all(80 <= len(story.split()) <= 250 for story in all_stories)


def test_every_answer_follows_from_the_text_before(all_stories: list[str]) -> None:
    refused: Counter[str] = Counter()
    for story in all_stories[::3]:
        reader = Reader(story)
        reader.follow()
        refused += reader.refused
    assert set(refused) == {"go", "take", "drop", "open", "light", "give", "talk", "examine", "read", "eat"}
    assert min(refused.values()) >= 20


def test_a_story_ends_with_its_goal_or_three_turns_after_the_warning(all_stories: list[str]) -> None:
    late = 0
    for story in all_stories:
        *turns, ending = story.split("\n")[2:]
        assert ending.endswith(" The end.")
        answers = turns[1::2]
        left = [len(answers) - 1 - i for i, answer in enumerate(answers) if answer.endswith(WARNING)]
        if "too late" in ending or "time is over" in ending:
            assert left == [3]
            late += 1
        else:
            assert all(turns <= 3 for turns in left)
    assert 0.05 < late / len(all_stories) < 0.25


GOALS = {  # what the beginning asks for, and the command that ends a story well
    "(You must find|You are looking for)": "take|get|pick up|give",
    "(The [^.]+ has lost|You have promised)": "give",
    "Somewhere there is": "drop|put down",
    "(You must be|Somebody waits)": "go|walk",
    "You are hungry": "eat",
    "Somebody has left": "read",
}


def test_the_last_command_reaches_the_goal_of_the_introduction(all_stories: list[str]) -> None:
    goals: Counter[str] = Counter()
    for story in all_stories:
        opening, *_, command, _, ending = story.split("\n")
        if "too late" not in ending and "time is over" not in ending:
            (goal,) = (goal for goal in GOALS if re.search(rf"[.] {goal}", opening))
            assert re.match(f"> ({GOALS[goal]}) ", command), story
            goals[goal] += 1
    assert len(goals) == len(GOALS)
    assert min(goals.values()) > 100


@given(seed=st.integers(0, 2**32))
def test_the_player_reaches_every_goal(seed: int) -> None:
    world = draw_quest(random.Random(seed))
    player = Player(world)
    world.describe()
    for _ in range(25):
        execute(world, player.next_command(hurried=True))
        if world.is_won():
            return
    raise AssertionError("the player is still on the way")


@given(seed=st.integers(0, 2**32), commands=st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 99))))
def test_no_command_loses_or_duplicates_a_thing(seed: int, commands: list) -> None:
    world = draw_quest(random.Random(seed))
    all_things = {*world.kinds}
    names = [*world.kinds, *world.people, *world.boxes, "door", "north", "east", "up", "elephant"]
    for verb, number in commands:
        what = "sing" if verb == "idle" else names[number % len(names)]
        answer = execute(world, Command(verb, what, [*world.people][number % len(world.people)]))
        assert re.fullmatch(r'["A-Z].*[.!"]', answer)
        assert {*world.holders} == all_things
        holders = {*world.locations, *world.boxes, *world.people, "you"}
        assert {holder for holder in world.holders.values() if holder != GONE} <= holders
        assert world.location in world.locations


def test_talking_works_after_an_unrequested_exchange() -> None:
    traded = 0
    for seed in range(200):
        world = draw_quest(random.Random(seed))
        for person, wish in [*world.requests.items()]:
            world.location = world.people[person]
            world.move(wish, "you")
            assert " gives you the " in execute(world, Command("give", wish, person))
            reward = world.contents("you")[-1]
            assert all(reward not in execute(world, Command("talk", person)) for _ in range(5)), (
                "nobody tells where it is"
            )
            traded += 1
    assert traded > 20


def test_a_lit_lamp_lights_its_location() -> None:
    worlds = (draw_quest(random.Random(seed)) for seed in range(99))
    world = next(w for w in worlds if {*w.locations} & DARK)
    lamp = next(thing for thing, kind in world.kinds.items() if kind == "light")
    (dark,) = {*world.locations} & DARK
    (outside,) = world.exits[dark].values()
    world.location = dark
    world.move(lamp, "you")
    assert "dark" in execute(world, Command("look"))
    assert "too dark" in execute(world, Command("take", "elephant"))
    assert f"You are {world.location_phrase(dark)}" in execute(world, Command("light", lamp))
    execute(world, Command("drop", lamp))
    assert f" {lamp}" in execute(world, Command("look"))
    world.move(lamp, outside)
    assert "dark" in execute(world, Command("look"))


def test_short_lists_are_prefixes_and_seeds_differ(all_stories: list[str]) -> None:
    assert stories(50) == all_stories[:50]
    assert {*stories(50, seed=1)}.isdisjoint(all_stories[:50])


def test_the_stories_do_not_depend_on_the_hash_seed() -> None:
    program = "from regard.modalities.synthetic.stories import stories; print(stories(300, seed=3))"
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second


def words(texts: list[str]) -> Counter[str]:
    return Counter(word for text in texts for word in re.findall(r"[\w']+", text.lower()))


def test_held_out_examples_are_new_but_have_only_training_words(all_stories: list[str]) -> None:
    parts = {part: [story for story in all_stories if split(story) == part] for part in ("train", "valid", "test")}
    assert sum(map(len, parts.values())) == len(all_stories)
    vocabulary = words(parts["train"])
    assert 400 < len(vocabulary) < 800
    for part in ("valid", "test"):
        assert len(parts[part]) >= 300
        assert {*words(parts[part])} <= {*vocabulary}


def test_english_articles_fit_the_sound_that_follows(all_stories: list[str]) -> None:
    for story in all_stories:
        for article, following in re.findall(r"\b(an?) (\w)", story):
            assert (article == "an") == (following in "aeiou"), f"{article} {following}"
