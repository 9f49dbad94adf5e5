"""The state of the text adventure: where everything is, what the player sees, and descriptions of locations."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.modalities.synthetic.adventure import scenery
from regard.modalities.synthetic.adventure.scenery import capitalize, join_items, there_is, with_article

YOU = "you"  # holder of the things that the player carries
GONE = "gone"  # holder of the things that were eaten
DOOR = "door"
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east", "up": "down", "down": "up"}


class Goal(NamedTuple):
    kind: str  # find, give, bring, reach, eat or read
    thing: str = ""
    target: str = ""  # the person to give it to, or the location to bring it to or to reach


@dataclass
class GameState:
    rng: random.Random  # chooses the wording
    setting: scenery.Setting
    goal: Goal
    locations: dict[str, scenery.Location]
    exits: dict[str, dict[str, str]]  # location -> direction -> location
    location: str  # of the player
    people: dict[str, str]  # person -> location
    boxes: dict[str, str]  # box -> location
    kinds: dict[str, str] = field(default_factory=dict)  # thing -> kind
    holders: dict[str, str] = field(default_factory=dict)  # thing -> location, box, person, YOU or GONE
    door: frozenset[str] = frozenset()  # the two locations that it connects
    requests: dict[str, str] = field(default_factory=dict)  # person -> thing wanted in exchange
    closed: set[str] = field(default_factory=set)  # boxes, and the door
    keys: dict[str, str] = field(default_factory=dict)  # lock -> its key
    paper_texts: dict[str, str] = field(default_factory=dict)  # paper -> its text
    useful_things: set[str] = field(default_factory=set)  # things that the goal requires
    lit: set[str] = field(default_factory=set)
    papers_read: set[str] = field(default_factory=set)
    visited: set[str] = field(default_factory=set)
    known_things: set[str] = field(default_factory=set)  # things whose holder the player knows

    def choice(self, *wordings: str) -> str:
        return self.rng.choice(wordings)

    def contents(self, holder: str) -> list[str]:
        """The things of a holder, in the order in which it got them."""
        return [thing for thing, place in self.holders.items() if place == holder]

    def move(self, thing: str, holder: str) -> None:
        del self.holders[thing]
        self.holders[thing] = holder

    def has_light(self) -> bool:
        is_lit = any(self.holders[light] in (YOU, self.location) for light in self.lit)
        return is_lit or not self.locations[self.location].dark

    def boxes_in_view(self) -> list[str]:
        return [box for box, place in self.boxes.items() if place == self.location and self.has_light()]

    def people_in_view(self) -> list[str]:
        return [person for person, place in self.people.items() if place == self.location and self.has_light()]

    def visible_things(self) -> list[str]:
        """Things that the player can take."""
        open_boxes = [box for box in self.boxes_in_view() if box not in self.closed]
        return [thing for holder in (self.location, *open_boxes) for thing in self.contents(holder) if self.has_light()]

    def has_door(self) -> bool:
        return self.location in self.door

    def leads_through_door(self, direction: str) -> bool:
        return {self.location, self.exits[self.location][direction]} == self.door

    def is_won(self) -> bool:
        kind, thing, target = self.goal
        return {
            "find": self.holders.get(thing) == YOU,
            "give": self.holders.get(thing) == target,
            "bring": self.holders.get(thing) == target,
            "reach": self.location == target,
            "eat": self.holders.get(thing) == GONE,
            "read": thing in self.papers_read,
        }[kind]

    def location_phrase(self, place: str) -> str:
        return f"{self.locations[place].preposition} the {place}"

    def describe(self, fully: bool = False) -> str:
        """The player's location, with its details and exits at the first visit or if `fully`."""
        fully = fully or self.location not in self.visited
        sentences = [f"You are {'' if fully else self.choice('back ', 'again ')}{self.location_phrase(self.location)}."]
        if not self.has_light():
            dark = self.choice("It is too dark to see anything.", "It is pitch dark, and you see nothing.")
            return " ".join([*sentences, dark, self.describe_exits()])
        self.visited.add(self.location)
        self.known_things.update(self.visible_things())
        if fully:
            sentences.append(self.choice(*self.locations[self.location].descriptions))
        sentences += [self.describe_box(box) for box in self.boxes_in_view()]
        sentences += self.describe_things()
        for person in self.people_in_view():
            sentences.append(f"The {person} {self.choice('is here', 'nods at you', 'sits here')}.")
        return " ".join([*sentences, self.describe_exits()] if fully else sentences)

    def describe_box(self, box: str) -> str:
        things = self.contents(box)
        if box in self.closed:
            return f"A closed {box} stands here."
        if not things:
            return f"The {box} is open and empty."
        return f"In the open {box} you see {join_items(map(with_article, things))}."

    def describe_things(self) -> list[str]:
        things = self.contents(self.location)
        if not things:
            return []
        return [self.choice(f"You see {join_items(map(with_article, things))}.", f"{there_is(things)} here.")]

    def describe_exits(self) -> str:
        """All exits; where a closed door leads stays secret."""
        exits, door = [], ""
        for direction, place in self.exits[self.location].items():
            if not self.leads_through_door(direction):
                exits.append(f"{direction} is the {place}")
            elif DOOR in self.closed:
                door = f"A closed door is in the {direction}."
            else:
                exits.append(f"{direction} is the open door to the {place}")
        return " ".join([*([capitalize(f"{join_items(exits)}.")] if exits else []), *([door] if door else [])])
