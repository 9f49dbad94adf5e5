"""The player's actions in the text adventure. Each changes the state or is refused, and returns the answer."""

from collections.abc import Callable
from typing import NamedTuple

from regard.modalities.synthetic.adventure.game_state import DOOR, GONE, YOU, GameState
from regard.modalities.synthetic.adventure.scenery import CHATTER, PASTIMES, join_items, there_is, with_article


class Command(NamedTuple):
    verb: str  # one of ACTIONS
    target: str = ""  # a thing, box, person, direction or pastime
    recipient: str = ""  # of a thing that is given


def execute(world: GameState, command: Command) -> str:
    if command.verb in ("drop", "light", "give", "read", "eat") and world.holders.get(command.target) != YOU:
        return f"You do not have the {command.target}."
    return ACTIONS[command.verb][0](world, *command[1:])


def go(w: GameState, direction: str, _: str) -> str:
    if direction not in w.exits[w.location]:
        return w.choice(f"You cannot go {direction}: no way leads there.", f"No way leads {direction} from here.")
    if w.leads_through_door(direction) and DOOR in w.closed:
        return f"You cannot go {direction}: the door is closed."
    w.location = w.exits[w.location][direction]
    return w.describe()


def look(w: GameState, *_: str) -> str:
    return w.describe(fully=True)


def inventory(w: GameState, *_: str) -> str:
    things = w.contents(YOU)
    return f"You have {join_items(map(with_article, things))}." if things else "You have nothing."


def take(w: GameState, thing: str, _: str) -> str:
    if thing in w.boxes_in_view():
        return f"You cannot take the {thing}: it is too heavy."
    if thing in w.people_in_view():
        return f"The {thing} would not like that."
    if w.holders.get(thing) == YOU:
        return f"You already have the {thing}."
    if not w.has_light():
        return f"You cannot find the {thing}: it is too dark."
    if thing not in w.visible_things():
        return w.choice(f"You cannot take the {thing}: it is not here.", f"There is no {thing} here.")
    w.move(thing, YOU)
    return w.choice(f"You take the {thing}.", f"You pick up the {thing}.", f"Now you have the {thing}.")


def drop(w: GameState, thing: str, _: str) -> str:
    w.move(thing, w.location)
    return w.choice(f"You drop the {thing}.", f"You put down the {thing}.")


def open_(w: GameState, name: str, _: str) -> str:
    """Opens a box or the door; the key of a lock is used if the player has it."""
    if name not in w.boxes_in_view() and not (name == DOOR and w.has_door()):
        if name in w.visible_things() or w.holders.get(name) == YOU:
            return f"You cannot open the {name}: it has no lid."
        return f"There is no {name} here."
    if name not in w.closed:
        return f"The {name} is already open."
    key = w.keys.get(name, "")
    if key and w.holders[key] != YOU:
        return w.choice(f"The {name} is locked, and you do not have the key.", f"The {name} is locked. You need a key.")
    w.closed.remove(name)
    unlocked = w.choice(f"You unlock the {name} with the {key}", f"The {key} turns in the lock") if key else ""
    if name == DOOR:
        (beyond,) = w.door - {w.location}
        return f"{unlocked}, and the door opens to the {beyond}." if key else f"You open the door to the {beyond}."
    things = w.contents(name)
    w.known_things.update(things)
    content = f"{there_is(things)} inside." if things else "It is empty."
    return f"{unlocked}, and the {name} opens. {content}" if key else f"You open the {name}. {content}"


def light(w: GameState, thing: str, _: str) -> str:
    if w.kinds[thing] != "light":
        return f"You cannot light the {thing}: it is no lamp."
    if thing in w.lit:
        return f"The {thing} is already burning."
    was_dark = not w.has_light()
    w.lit.add(thing)
    answer = w.choice(f"You light the {thing}.", f"The {thing} burns with a warm light.")
    return f"{answer} {w.describe()}" if was_dark else answer


def give(w: GameState, thing: str, person: str) -> str:
    if person not in w.people_in_view():
        return f"The {person} is not here."
    if w.goal == ("give", thing, person):
        w.move(thing, person)
        return w.choice(f'"My {thing}!" cries the {person}.', f"The {person} takes the {thing} and smiles.")
    if w.requests.get(person) != thing:
        return w.choice(f'"No, thank you," says the {person}.', f"The {person} does not want the {thing}.")
    (reward,) = w.contents(person)
    del w.requests[person]
    w.move(thing, person)
    w.move(reward, YOU)
    w.known_things.add(reward)
    return f"The {person} takes the {thing} and gives you the {reward}."


def talk(w: GameState, person: str, _: str) -> str:
    if person not in w.people_in_view():
        return f"The {person} is not here."
    if request := w.requests.get(person):
        (reward,) = w.contents(person)
        w.known_things.add(reward)
        return w.choice(
            f'"Bring me {with_article(request)}, and you get {with_article(reward)}," says the {person}.',
            f'"I would give you {with_article(reward)} for {with_article(request)}," says the {person}.',
        )
    if (w.goal.kind, w.goal.target) == ("give", person):
        return f'"Where is my {w.goal.thing}?" asks the {person}.'
    if unknown := sorted(w.useful_things - w.known_things):
        thing = unknown[0]
        w.known_things.add(thing)
        holder = w.holders[thing]
        if holder in w.people:
            return f'"Ask the {holder} for the {thing}," says the {person}.'
        place = w.boxes.get(holder, holder)
        return w.choice(
            f'"Look for the {thing} {w.location_phrase(place)}," says the {person}.',
            f'"I have seen {with_article(thing)} {w.location_phrase(place)}," says the {person}.',
        )
    return w.choice(*CHATTER).format(person)


def examine(w: GameState, name: str, _: str) -> str:
    if name in w.boxes_in_view():
        return f"The {name} is closed." if name in w.closed else w.describe_box(name)
    if w.holders.get(name) != YOU and name not in w.visible_things():
        return f"You see no {name} here."
    if w.kinds[name] == "light":
        return f"The {name} is {'burning' if name in w.lit else 'not burning'}."
    descriptions = {"paper": "Something is written on it.", "food": "It looks tasty."}
    descriptions["treasure"] = "It must be worth a lot."
    return descriptions.get(w.kinds[name], w.choice("It has seen better days.", "It could be useful."))


def read(w: GameState, thing: str, _: str) -> str:
    if w.kinds[thing] != "paper":
        return f"You cannot read the {thing}: nothing is written on it."
    if not w.has_light():
        return "It is too dark to read."
    w.papers_read.add(thing)
    return f'The {thing} says: "{w.paper_texts[thing]}"'


def eat(w: GameState, thing: str, _: str) -> str:
    if w.kinds[thing] != "food":
        return f"You cannot eat the {thing}: it is not food."
    w.move(thing, GONE)
    return w.choice(f"You eat the {thing}. It tastes good.", f"You eat the {thing}. Not a crumb is left.")


def idle(w: GameState, pastime: str, _: str) -> str:
    return w.choice(*PASTIMES[pastime])


ACTIONS: dict[str, tuple[Callable[[GameState, str, str], str], tuple[str, ...]]] = {  # by verb, with its phrasings
    "go": (go, ("go {0}", "go {0}", "walk {0}")),
    "look": (look, ("look", "look around")),
    "inventory": (inventory, ("inventory", "what do I have")),
    "take": (take, ("take the {0}", "take the {0}", "get the {0}", "pick up the {0}")),
    "drop": (drop, ("drop the {0}", "drop the {0}", "put down the {0}")),
    "open": (open_, ("open the {0}",)),
    "light": (light, ("light the {0}",)),
    "give": (give, ("give the {0} to the {1}",)),
    "talk": (talk, ("talk to the {0}", "ask the {0}")),
    "examine": (examine, ("look at the {0}", "examine the {0}")),
    "read": (read, ("read the {0}",)),
    "eat": (eat, ("eat the {0}",)),
    "idle": (idle, ("{0}",)),
}


def verbalize(world: GameState, command: Command) -> str:
    """The command as a text. A thing may be named by its noun alone: "the lamp" for the old brass lamp."""
    target = command.target
    if target in world.kinds and world.rng.random() < 0.5:
        target = target.split()[-1]
    return world.choice(*ACTIONS[command.verb][1]).format(target, command.recipient)
