"""What the player can do in the adventure, and how the world answers: by a change, or by a refusal with its reason."""

from collections.abc import Callable
from typing import NamedTuple

from regard.data.bundled.adventure.game_state import DOOR, GONE, YOU, GameState
from regard.data.bundled.adventure.scenery import CHATTER, PASTIMES, a, listed, there_is


class Command(NamedTuple):
    verb: str  # one of DEEDS
    what: str = ""  # a thing, box, person, direction or pastime
    whom: str = ""  # who gets it


def do(world: GameState, command: Command) -> str:
    return DEEDS[command.verb](world, *command[1:])


def go(w: GameState, direction: str, _: str) -> str:
    if direction not in w.ways[w.here]:
        return w.say(f"You cannot go {direction}: no way leads there.", f"No way leads {direction} from here.")
    if w.behind_door(direction) and DOOR in w.shut:
        return f"You cannot go {direction}: the door is closed."
    w.here = w.ways[w.here][direction]
    return w.described()


def look(w: GameState, *_: str) -> str:
    return w.described(fully=True)


def inventory(w: GameState, *_: str) -> str:
    things = w.carried()
    return f"You have {listed(map(a, things))}." if things else "You have nothing."


def take(w: GameState, thing: str, _: str) -> str:
    if thing in w.boxes_here():
        return f"You cannot take the {thing}: it is too heavy."
    if thing in w.people_here():
        return f"The {thing} would not like that."
    if w.where.get(thing) == YOU:
        return f"You already have the {thing}."
    if not w.bright():
        return f"You cannot find the {thing}: it is too dark."
    if thing not in w.visible():
        return w.say(f"You cannot take the {thing}: it is not here.", f"There is no {thing} here.")
    w.move(thing, YOU)
    return w.say(f"You take the {thing}.", f"You pick up the {thing}.", f"Now you have the {thing}.")


def drop(w: GameState, thing: str, _: str) -> str:
    if w.where.get(thing) != YOU:
        return f"You do not have the {thing}."
    w.move(thing, w.here)
    return w.say(f"You drop the {thing}.", f"You put down the {thing}.")


def unseal(w: GameState, name: str, _: str) -> str:
    """Opens a box or the door; a lock opens by itself for whoever has its key."""
    if name not in w.boxes_here() and not (name == DOOR and w.door_here()):
        if name in w.visible() or w.where.get(name) == YOU:
            return f"You cannot open the {name}: it has no lid."
        return f"There is no {name} here."
    if name not in w.shut:
        return f"The {name} is already open."
    key = w.keys.get(name, "")
    if key and w.where[key] != YOU:
        return w.say(f"The {name} is locked, and you do not have the key.", f"The {name} is locked. You need a key.")
    w.shut.remove(name)
    start = w.say(f"You unlock the {name} with the {key}", f"The {key} turns in the lock") if key else ""
    if name == DOOR:
        (beyond,) = w.door - {w.here}
        return f"{start}, and the door opens to the {beyond}." if key else f"You open the door to the {beyond}."
    things = w.inside(name)
    w.known.update(things)
    found = f"{there_is(things)} inside." if things else "It is empty."
    return f"{start}, and the {name} opens. {found}" if key else f"You open the {name}. {found}"


def light(w: GameState, thing: str, _: str) -> str:
    if w.where.get(thing) != YOU:
        return f"You do not have the {thing}."
    if w.kinds[thing] != "light":
        return f"You cannot light the {thing}: it is no lamp."
    if thing in w.burning:
        return f"The {thing} is already burning."
    dark = not w.bright()
    w.burning.add(thing)
    told = w.say(f"You light the {thing}.", f"The {thing} burns with a warm light.")
    return f"{told} {w.described()}" if dark else told


def give(w: GameState, thing: str, person: str) -> str:
    if w.where.get(thing) != YOU:
        return f"You do not have the {thing}."
    if person not in w.people_here():
        return f"The {person} is not here."
    if w.goal == ("give", thing, person):
        w.move(thing, person)
        return w.say(f'"My {thing}!" cries the {person}.', f"The {person} takes the {thing} and smiles.")
    if w.wishes.get(person) != thing:
        return w.say(f'"No, thank you," says the {person}.', f"The {person} does not want the {thing}.")
    (reward,) = w.inside(person)
    del w.wishes[person]
    w.move(thing, person)
    w.move(reward, YOU)
    w.known.add(reward)
    return f"The {person} takes the {thing} and gives you the {reward}."


def talk(w: GameState, person: str, _: str) -> str:
    if person not in w.people_here():
        return f"The {person} is not here."
    if wish := w.wishes.get(person):
        (reward,) = w.inside(person)
        w.known.add(reward)
        return w.say(
            f'"Bring me {a(wish)}, and you get {a(reward)}," says the {person}.',
            f'"I would give you {a(reward)} for {a(wish)}," says the {person}.',
        )
    if (w.goal.kind, w.goal.target) == ("give", person):
        return f'"Where is my {w.goal.thing}?" asks the {person}.'
    if secrets := sorted(w.needed - w.known):
        thing = secrets[0]
        w.known.add(thing)
        holder = w.where[thing]
        if holder in w.people:
            return f'"Ask the {holder} for the {thing}," says the {person}.'
        place = w.boxes.get(holder, holder)
        return w.say(
            f'"Look for the {thing} {w.at(place)}," says the {person}.',
            f'"I have seen {a(thing)} {w.at(place)}," says the {person}.',
        )
    return w.say(*CHATTER).format(person)


def examine(w: GameState, name: str, _: str) -> str:
    if name in w.boxes_here():
        return f"The {name} is closed." if name in w.shut else w.box_told(name)
    if w.where.get(name) != YOU and name not in w.visible():
        return f"You see no {name} here."
    if w.kinds[name] == "light":
        return f"The {name} is {'burning' if name in w.burning else 'not burning'}."
    looks = {"paper": "Something is written on it.", "food": "It looks tasty.", "treasure": "It must be worth a lot."}
    return looks.get(w.kinds[name], w.say("It has seen better days.", "It could be useful."))


def read(w: GameState, thing: str, _: str) -> str:
    if w.where.get(thing) != YOU:
        return f"You do not have the {thing}."
    if w.kinds[thing] != "paper":
        return f"You cannot read the {thing}: nothing is written on it."
    if not w.bright():
        return "It is too dark to read."
    w.read.add(thing)
    return f'The {thing} says: "{w.sayings[thing]}"'


def eat(w: GameState, thing: str, _: str) -> str:
    if w.where.get(thing) != YOU:
        return f"You do not have the {thing}."
    if w.kinds[thing] != "food":
        return f"You cannot eat the {thing}: it is not food."
    w.move(thing, GONE)
    return w.say(f"You eat the {thing}. It tastes good.", f"You eat the {thing}. Not a crumb is left.")


def idle(w: GameState, pastime: str, _: str) -> str:
    return w.say(*PASTIMES[pastime])


DEEDS: dict[str, Callable[[GameState, str, str], str]] = {
    "go": go,
    "look": look,
    "inventory": inventory,
    "take": take,
    "drop": drop,
    "open": unseal,
    "light": light,
    "give": give,
    "talk": talk,
    "examine": examine,
    "read": read,
    "eat": eat,
    "idle": idle,
}
SPOKEN = {  # how a player says it
    "go": ("go {0}", "go {0}", "walk {0}"),
    "look": ("look", "look around"),
    "inventory": ("inventory", "what do I have"),
    "take": ("take the {0}", "take the {0}", "get the {0}", "pick up the {0}"),
    "drop": ("drop the {0}", "drop the {0}", "put down the {0}"),
    "open": ("open the {0}",),
    "light": ("light the {0}",),
    "give": ("give the {0} to the {1}",),
    "talk": ("talk to the {0}", "ask the {0}"),
    "examine": ("look at the {0}", "examine the {0}"),
    "read": ("read the {0}",),
    "eat": ("eat the {0}",),
    "idle": ("{0}",),
}


def spoken(world: GameState, command: Command) -> str:
    """A thing may be called by its noun alone: "the lamp" for the old brass lamp."""
    what = command.what
    if what in world.kinds and world.rng.random() < 0.5:
        what = what.split()[-1]
    return world.say(*SPOKEN[command.verb]).format(what, command.whom)
