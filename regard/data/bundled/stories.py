"""Stories: transcripts of a small text adventure, played by the machine in a world of its own, as many as are wanted.

    > take the lamp
    You pick up the brass lamp.

A story tells where the player is and what the player wants, then turns follow: a line that begins with "> " is what the
player says, the line below is what happens. The answers follow from the state of the world, so whoever wants to predict
them has to keep track of where things are, what is carried, open or lit, and which ways lead where. The last line tells
whether the goal was reached in time.
"""

import random
from hashlib import blake2b

from regard.data.bundled.adventure.actions import do, spoken
from regard.data.bundled.adventure.player import Player
from regard.data.bundled.adventure.quests import beginning, draw, ending

SHORTEST, LONGEST = 80, 250  # words of a story
TURNS = (8, 14, 16, 16)  # after which time is over
HURRY = 3  # turns before that, the player is warned


def stories(count: int = 6_000, seed: int = 0) -> list[str]:
    """`count` different stories, the same for the same seed."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        story = tell(rng)
        if SHORTEST <= len(story.split()) <= LONGEST:
            found[story] = None
    return list(found)


def split(story: str) -> str:
    """'train', 'valid' or 'test', decided by the text."""
    share = int.from_bytes(blake2b(story.encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 6 else "test" if share < 12 else "train"


def tell(rng: random.Random) -> str:
    world = draw(rng)
    player = Player(world)
    lines = [beginning(world), world.described()]
    for left in reversed(range(rng.choice(TURNS))):
        command = player.next(hurried=left < HURRY)
        lines += [f"> {spoken(world, command)}", do(world, command)]
        if world.won():
            break
        if left == HURRY:
            lines[-1] += f" {world.setting.warning}: three turns are left."
    return "\n".join([*lines, ending(world)])
