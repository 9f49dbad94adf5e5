"""The world of the adventure: what is where, what the player can see of it, and how a place is described."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.data.bundled.adventure.scenery import Location, Setting, a, listed, sentence, there_is

YOU = "you"  # where a thing is that the player carries
GONE = "gone"  # eaten
DOOR = "door"
BACK = {"north": "south", "south": "north", "east": "west", "west": "east", "up": "down", "down": "up"}


class Goal(NamedTuple):
    kind: str  # find, give, bring, reach, eat or read
    thing: str = ""
    target: str = ""  # the person to give it to, or the place to bring it to or to reach


@dataclass
class GameState:
    rng: random.Random  # chooses among wordings
    setting: Setting
    goal: Goal
    places: dict[str, Location]
    ways: dict[str, dict[str, str]]  # place -> direction -> place
    here: str  # the place where the player is
    people: dict[str, str]  # person -> place
    boxes: dict[str, str]  # box -> place
    kinds: dict[str, str] = field(default_factory=dict)  # thing -> kind
    where: dict[str, str] = field(default_factory=dict)  # thing -> place, box, person, YOU or GONE
    door: frozenset[str] = frozenset()  # the two places it parts
    wishes: dict[str, str] = field(default_factory=dict)  # person -> thing wanted in return for the one held
    shut: set[str] = field(default_factory=set)  # boxes, and the door
    keys: dict[str, str] = field(default_factory=dict)  # what is locked -> the thing that opens it
    sayings: dict[str, str] = field(default_factory=dict)  # paper -> what is written there
    needed: set[str] = field(default_factory=set)  # things that help to reach the goal
    burning: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    visited: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)  # things whose whereabouts the player has seen or been told

    def say(self, *wordings: str) -> str:
        return self.rng.choice(wordings)

    def carried(self) -> list[str]:
        """In the order in which they were taken."""
        return self.inside(YOU)

    def inside(self, holder: str) -> list[str]:
        return [thing for thing, place in self.where.items() if place == holder]

    def move(self, thing: str, holder: str) -> None:
        del self.where[thing]
        self.where[thing] = holder

    def bright(self) -> bool:
        return not self.places[self.here].dark or any(self.where[light] in (YOU, self.here) for light in self.burning)

    def boxes_here(self) -> list[str]:
        return [box for box, place in self.boxes.items() if place == self.here and self.bright()]

    def people_here(self) -> list[str]:
        return [person for person, place in self.people.items() if place == self.here and self.bright()]

    def visible(self) -> list[str]:
        """Things that could be taken from here."""
        open_here = [box for box in self.boxes_here() if box not in self.shut]
        return [thing for holder in (self.here, *open_here) for thing in self.inside(holder) if self.bright()]

    def door_here(self) -> bool:
        return self.here in self.door

    def behind_door(self, direction: str) -> bool:
        return {self.here, self.ways[self.here][direction]} == self.door

    def won(self) -> bool:
        kind, thing, target = self.goal
        return {
            "find": self.where.get(thing) == YOU,
            "give": self.where.get(thing) == target,
            "bring": self.where.get(thing) == target,
            "reach": self.here == target,
            "eat": self.where.get(thing) == GONE,
            "read": thing in self.read,
        }[kind]

    def at(self, place: str) -> str:
        return f"{self.places[place].at} the {place}"

    def described(self, fully: bool = False) -> str:
        """The place where the player is; looks and ways are told at the first visit, or to whoever looks around."""
        fully = fully or self.here not in self.visited
        told = [f"You are {'' if fully else self.say('back ', 'again ')}{self.at(self.here)}."]
        if not self.bright():
            dark = self.say("It is too dark to see anything.", "It is pitch dark, and you see nothing.")
            return " ".join([*told, dark, self.ways_told()])
        self.visited.add(self.here)
        self.known.update(self.visible())
        if fully:
            told.append(self.say(*self.places[self.here].looks))
        told += [self.box_told(box) for box in self.boxes_here()]
        told += self.things_told() + [self.person_told(person) for person in self.people_here()]
        return " ".join([*told, self.ways_told()] if fully else told)

    def box_told(self, box: str) -> str:
        things = self.inside(box)
        if box in self.shut:
            return f"A closed {box} stands here."
        return f"In the open {box} you see {listed(map(a, things))}." if things else f"The {box} is open and empty."

    def things_told(self) -> list[str]:
        things = self.inside(self.here)
        return [self.say(f"You see {listed(map(a, things))}.", f"{there_is(things)} here.")] if things else []

    def person_told(self, person: str) -> str:
        return f"The {person} {self.say('is here', 'nods at you', 'sits here')}."

    def ways_told(self) -> str:
        """The ways out. A closed door does not tell where it leads."""
        ways, closed = [], ""
        for direction, place in self.ways[self.here].items():
            if not self.behind_door(direction):
                ways.append(f"{direction} is the {place}")
            elif DOOR in self.shut:
                closed = f"A closed door is in the {direction}."
            else:
                ways.append(f"{direction} is the open door to the {place}")
        return " ".join([*([sentence(f"{listed(ways)}.")] if ways else []), *([closed] if closed else [])])
