"""Somebody who plays the adventure: knows only what was seen or told, mostly does what helps, and sometimes does not.

What helps is found backwards from the goal. Each function gives the next command towards its aim, or None if it is met.
"""

from regard.data.bundled.adventure.actions import Command
from regard.data.bundled.adventure.game_state import DOOR, YOU, GameState
from regard.data.bundled.adventure.scenery import PASTIMES, THINGS

CURIOUS = 0.25  # share of commands that do not help


class Player:
    def __init__(self, world: GameState):
        self.world, self.rng = world, world.rng
        self.tried: set[str] = set()  # locks that did not open, and people already asked
        self.last = Command("")

    def next(self, hurried: bool) -> Command:
        aside = self.aside() if self.rng.random() < CURIOUS and not hurried else None
        command = aside if aside and aside != self.last else self.useful()
        w = self.world
        here = {*w.boxes_here(), *w.people_here(), *([DOOR] if w.door_here() else [])}
        if command.verb in ("open", "talk") and command.what in here:
            self.tried.add(command.what)
        self.last = command
        return command

    def useful(self) -> Command:
        w = self.world
        kind, thing, target = w.goal
        for found in w.visible():
            if found in w.needed:
                return Command("take", found)
        if kind == "reach":
            return self.reach(target) or Command("look")
        if kind == "give":
            return self.get(thing) or self.reach(w.people[target]) or Command("give", thing, target)
        if kind == "bring":
            return self.get(thing) or self.reach(target) or Command("drop", thing)
        return self.get(thing) or Command(kind, thing)

    def get(self, thing: str) -> Command | None:
        w = self.world
        holder = w.where[thing]
        if holder == YOU:
            return None
        if thing not in w.known:
            return self.explore(thing)
        if holder in w.people:
            wish = w.wishes[holder]
            return self.get(wish) or self.reach(w.people[holder]) or Command("give", wish, holder)
        place = w.boxes.get(holder, holder)
        closed = Command("open", holder) if holder in w.shut else None
        return self.key_to(holder) or self.reach(place) or closed or Command("take", thing)

    def key_to(self, lock: str) -> Command | None:
        """Only what was tried is known to be locked."""
        key = self.world.keys.get(lock)
        return self.get(key) if key and lock in self.world.shut & self.tried else None

    def brighten(self) -> Command | None:
        w = self.world
        if any(w.where[light] == YOU for light in w.burning):
            return None
        lights = sorted((w.where[thing] != YOU, thing) for thing in w.needed if w.kinds[thing] == "light")
        return self.get(lights[0][1]) or Command("light", lights[0][1])

    def reach(self, place: str) -> Command | None:
        """The next step there, after fetching the key and the light that the way needs."""
        w = self.world
        way = self.way_to(place)
        missing = self.key_to(DOOR) if w.door <= {*way} else None
        if not missing and any(w.places[name].dark for name in way[1:] or way):
            missing = self.brighten()
        if missing or w.here == place:
            return missing
        (direction,) = (direction for direction, there in w.ways[w.here].items() if there == way[1])
        return Command("open", DOOR) if w.door == {*way[:2]} and DOOR in w.shut else Command("go", direction)

    def way_to(self, place: str) -> list[str]:
        """All places on the way, the first and the last as well."""
        ways = {self.world.here: [self.world.here]}
        for near in (queue := [self.world.here]):
            for there in self.world.ways[near].values():
                if there not in ways:
                    ways[there] = [*ways[near], there]
                    queue.append(there)
        return ways[place]

    def explore(self, thing: str) -> Command | None:
        """Looks around for a thing; whoever has seen everything guesses right."""
        w = self.world
        for box in w.boxes_here():
            if box in w.shut and box not in self.tried:
                return Command("open", box)
        for person in w.people_here():
            if person not in self.tried:
                return Command("talk", person)
        barred = w.door if DOOR in w.shut & self.tried else frozenset()
        new = [name for name in w.places if name not in w.visited | barred and not w.places[name].dark]
        if new:
            return self.reach(min(new, key=lambda name: len(self.way_to(name))))
        w.known.add(thing)
        return self.get(thing)

    def aside(self) -> Command | None:
        """Something else that one might say here, sensible or not."""
        w, pick = self.world, self.rng.choice
        nouns = {thing.split()[-1] for thing in w.kinds}
        nowhere = [noun for words, _ in THINGS.values() for noun in words.split() if noun not in nouns]
        heard_of = pick([*sorted(w.known), pick(nowhere)])
        carried, spare = w.carried(), [thing for thing in w.visible() if thing not in w.needed]
        people = [person for person, place in w.people.items() if place in w.visited]
        boxes = [box for box, place in w.boxes.items() if place in w.visited]
        options = [
            Command("look"),
            Command("inventory"),
            Command("idle", pick(list(PASTIMES))),
            Command("go", pick(("north", "south", "east", "west"))),
            Command("take", pick(spare or [heard_of])),
            Command("drop", pick([*carried, heard_of])),
            Command("open", pick([*boxes, DOOR, heard_of])),
            Command("examine", pick([*carried, *w.visible(), *boxes, heard_of])),
        ]
        for verb, kind in ("light", "light"), ("read", "paper"), ("eat", "food"):
            options.append(Command(verb, pick([thing for thing in carried if w.kinds[thing] == kind] or [heard_of])))
        if people:
            options += [Command("talk", pick(people)), Command("give", pick([*carried, heard_of]), pick(people))]
        command = pick(options)
        return None if command.verb in ("eat", "drop", "give") and command.what in w.needed else command
