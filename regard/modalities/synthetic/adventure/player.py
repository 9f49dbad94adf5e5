"""A simulated player of the text adventure, who knows only what the game has described, and sometimes digresses.

Backward chaining from the goal finds useful commands: each method returns the next command towards its subgoal, or None
if that is reached.
"""

from regard.modalities.synthetic.adventure.actions import Command
from regard.modalities.synthetic.adventure.game_state import DOOR, YOU, GameState
from regard.modalities.synthetic.adventure.scenery import PASTIMES, THINGS

DIGRESSIONS = 0.25  # share of commands that do not help


class Player:
    def __init__(self, world: GameState):
        self.world, self.rng = world, world.rng
        self.attempted: set[str] = set()  # boxes, doors and people that were already opened or asked
        self.last = Command("")

    def next_command(self, hurried: bool) -> Command:
        digression = self.digress() if self.rng.random() < DIGRESSIONS and not hurried else None
        command = digression if digression and digression != self.last else self.useful_command()
        w = self.world
        openable = {*w.boxes_in_view(), *w.people_in_view(), *([DOOR] if w.has_door() else [])}
        if command.verb in ("open", "talk") and command.target in openable:
            self.attempted.add(command.target)
        self.last = command
        return command

    def useful_command(self) -> Command:
        w = self.world
        kind, thing, target = w.goal
        for visible in w.visible_things():
            if visible in w.useful_things:
                return Command("take", visible)
        if kind == "reach":
            return self.reach(target) or Command("look")
        if kind == "give":
            return self.get(thing) or self.reach(w.people[target]) or Command("give", thing, target)
        if kind == "bring":
            return self.get(thing) or self.reach(target) or Command("drop", thing)
        return self.get(thing) or Command(kind, thing)

    def get(self, thing: str) -> Command | None:
        w = self.world
        holder = w.holders[thing]
        if holder == YOU:
            return None
        if thing not in w.known_things:
            return self.explore(thing)
        if holder in w.people:
            request = w.requests[holder]
            return self.get(request) or self.reach(w.people[holder]) or Command("give", request, holder)
        place = w.boxes.get(holder, holder)
        opening = Command("open", holder) if holder in w.closed else None
        return self.get_key(holder) or self.reach(place) or opening or Command("take", thing)

    def get_key(self, lock: str) -> Command | None:
        """The player knows a lock only after trying to open it."""
        key = self.world.keys.get(lock)
        return self.get(key) if key and lock in self.world.closed & self.attempted else None

    def get_light(self) -> Command | None:
        w = self.world
        if any(w.holders[light] == YOU for light in w.lit):
            return None
        lights = sorted((w.holders[thing] != YOU, thing) for thing in w.useful_things if w.kinds[thing] == "light")
        return self.get(lights[0][1]) or Command("light", lights[0][1])

    def reach(self, place: str) -> Command | None:
        """The next step there, after fetching the key and the light that the path requires."""
        w = self.world
        path = self.path_to(place)
        missing = self.get_key(DOOR) if w.door <= {*path} else None
        if not missing and any(w.locations[name].dark for name in path[1:] or path):
            missing = self.get_light()
        if missing or w.location == place:
            return missing
        (direction,) = (direction for direction, target in w.exits[w.location].items() if target == path[1])
        return Command("open", DOOR) if w.door == {*path[:2]} and DOOR in w.closed else Command("go", direction)

    def path_to(self, place: str) -> list[str]:
        """The locations of the shortest path, with its start and its end (breadth-first search)."""
        paths = {self.world.location: [self.world.location]}
        for near in (queue := [self.world.location]):
            for neighbour in self.world.exits[near].values():
                if neighbour not in paths:
                    paths[neighbour] = [*paths[near], neighbour]
                    queue.append(neighbour)
        return paths[place]

    def explore(self, thing: str) -> Command | None:
        """Searches for a thing. A player who has searched everywhere learns where it is."""
        w = self.world
        for box in w.boxes_in_view():
            if box in w.closed and box not in self.attempted:
                return Command("open", box)
        for person in w.people_in_view():
            if person not in self.attempted:
                return Command("talk", person)
        barred = w.door if DOOR in w.closed & self.attempted else frozenset()
        new = [name for name in w.locations if name not in w.visited | barred and not w.locations[name].dark]
        if new:
            return self.reach(min(new, key=lambda name: len(self.path_to(name))))
        w.known_things.add(thing)
        return self.get(thing)

    def digress(self) -> Command | None:
        """A random command, useful or not."""
        w, pick = self.world, self.rng.choice
        nouns = {thing.split()[-1] for thing in w.kinds}
        absent = [noun for words, _ in THINGS.values() for noun in words.split() if noun not in nouns]
        named = pick([*sorted(w.known_things), pick(absent)])
        carried, spare = w.contents(YOU), [thing for thing in w.visible_things() if thing not in w.useful_things]
        people = [person for person, place in w.people.items() if place in w.visited]
        boxes = [box for box, place in w.boxes.items() if place in w.visited]
        options = [
            Command("look"),
            Command("inventory"),
            Command("idle", pick(list(PASTIMES))),
            Command("go", pick(("north", "south", "east", "west"))),
            Command("take", pick(spare or [named])),
            Command("drop", pick([*carried, named])),
            Command("open", pick([*boxes, DOOR, named])),
            Command("examine", pick([*carried, *w.visible_things(), *boxes, named])),
        ]
        for verb, kind in ("light", "light"), ("read", "paper"), ("eat", "food"):
            options.append(Command(verb, pick([thing for thing in carried if w.kinds[thing] == kind] or [named])))
        if people:
            options += [Command("talk", pick(people)), Command("give", pick([*carried, named]), pick(people))]
        command = pick(options)
        return None if command.verb in ("eat", "drop", "give") and command.target in w.useful_things else command
