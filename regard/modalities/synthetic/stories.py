"""Generates stories: transcripts of a small text adventure with a simulated player.

    > take the lamp
    You pick up the brass lamp.

A story begins with the location and the goal, then turns follow: a line that begins with "> " is the player's command,
the line below it the answer. The answers follow from the state of the game, so a model that predicts them must track
where things are, what is carried, open or lit, and where the exits lead. The last line says whether the player reached
the goal in time.
"""

import random

from regard.modalities.synthetic.adventure.actions import execute, verbalize
from regard.modalities.synthetic.adventure.player import Player
from regard.modalities.synthetic.adventure.quests import conclusion, draw_quest, introduction
from regard.modalities.synthetic.distinct import split_by_hash

SHORTEST, LONGEST = 80, 250  # words of a story
TURNS = (8, 14, 16, 16)  # limits on the number of turns
WARNING = 3  # turns before the limit, at which the player is warned


def stories(count: int = 6_000, seed: int = 0) -> list[str]:
    """`count` different stories; the same seed gives the same stories."""
    rng = random.Random(seed)
    distinct: dict[str, None] = {}
    while len(distinct) < count:
        story = play(rng)
        if SHORTEST <= len(story.split()) <= LONGEST:
            distinct[story] = None
    return list(distinct)


def split(story: str) -> str:
    """'train', 'valid' or 'test', by a hash of the text."""
    return split_by_hash(story, 6)


def play(rng: random.Random) -> str:
    world = draw_quest(rng)
    player = Player(world)
    lines = [introduction(world), world.describe()]
    for left in reversed(range(rng.choice(TURNS))):
        command = player.next_command(hurried=left < WARNING)
        lines += [f"> {verbalize(world, command)}", execute(world, command)]
        if world.is_won():
            break
        if left == WARNING:
            lines[-1] += f" {world.setting.warning}: three turns are left."
    return "\n".join([*lines, conclusion(world)])
