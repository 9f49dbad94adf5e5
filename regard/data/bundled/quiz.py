"""The quiz: short texts with questions whose answers are words of the text, made by a small grammar.

    Anna found a lamp on the bridge, and Paul found a lamp in the park.  Where did Paul find the lamp?  ->  in the park

People of a text do much the same things at different places and times, so a question is answered only by putting
together who did what, and where and when. Somebody may be named by a job or a pronoun instead of the name. Every
question has one answer, and at least one other place, time, person ... of the text could be mistaken for it.
"""

import random
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

HE, SHE = ("he", "his"), ("she", "her")
PEOPLE = dict.fromkeys(("Anna", "Clara", "Emma", "Grace", "Ida", "Kate", "Mia", "Olga", "Rosa"), SHE)
PEOPLE |= dict.fromkeys(("Ben", "David", "Felix", "Henry", "Jonas", "Leo", "Noah", "Paul", "Sam"), HE)
JOBS = ("baker", "doctor", "farmer", "gardener", "painter", "pilot", "sailor", "singer", "tailor", "teacher")
VERBS = {
    **{"buy": "bought", "find": "found", "lose": "lost", "sell": "sold", "hide": "hid", "borrow": "borrowed"},
    **{"paint": "painted", "repair": "repaired", "draw": "drew", "forget": "forgot", "see": "saw"},
}
NOUNS = ("lamp", "kite", "clock", "chair", "drum", "umbrella", "mirror", "basket", "violin", "hat", "carpet", "vase")
LOOKS = ("red", "blue", "green", "old", "new", "small", "large", "ugly", "pretty")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES = (
    *("at the market", "in the garden", "at the station", "near the lake", "on the bridge", "behind the church"),
    *("in the kitchen", "in the park", "on the beach", "at the harbour", "in the attic", "under the old oak"),
    *("in the museum", "at the airport"),
)
TIMES = (
    *("on Monday", "on Tuesday", "on Wednesday", "on Thursday", "on Friday", "on Saturday", "on Sunday"),
    *("in the morning", "in the evening", "at noon", "at midnight", "after lunch", "before breakfast"),
)
REASONS = (
    *("because {his} sister needed help", "because it was {his} birthday", "because {he} had lost a bet"),
    *("because {his} neighbour had asked for it", "because {his} old aunt was ill", "because the rain had stopped"),
    *("because {he} could not sleep", "because {he} needed money for a journey", "because {his} train was late"),
    *("because {he} wanted to surprise {his} mother", "because {he} was bored", "because guests were coming"),
)
FILLERS = (
    *("It was a warm week in May.", "Everybody in the village was busy.", "Nobody noticed the fox behind the hedge."),
    *("The market was full of people.", "The church bells rang all day.", "A cold wind blew from the lake."),
    *("There was a lot to do.", "The trains were late again."),
)
ORDERS = (  # of the parts of a sentence
    *(("who", "verb", "what", "where", "when", "why"), ("who", "verb", "what", "when", "where", "why")),
    *(("when", "who", "verb", "what", "where", "why"), ("where", "who", "verb", "what", "when", "why")),
)
GIVEN = {  # by kind of question: what it always tells, and what it may tell besides
    "who": (("verb", "noun"), ("amount", "where", "when")),
    "where": (("who", "verb", "noun"), ("amount", "when")),
    "when": (("who", "verb", "noun"), ("amount", "where")),
    "what": (("who", "verb"), ("where", "when")),
    "how many": (("who", "verb", "noun"), ("where", "when")),
    "why": (("who", "verb", "noun"), ("amount", "where", "when")),
}
SHORTEST, LONGEST = 40, 90  # words of a document
SENTENCES = range(4, 10)
EACH = 3  # questions about a document


class QuizItem(NamedTuple):
    question: str
    document: str
    answer: str
    start: int  # document[start : start + len(answer)] == answer


class Event(NamedTuple):
    who: str
    verb: str
    noun: str
    amount: str  # a number, or how the one thing looks
    where: str
    when: str
    why: str

    @property
    def what(self) -> str:
        return f"{self.amount} {self.noun}s" if self.amount in NUMBERS else f"{a(self.amount)} {self.noun}"


class DocumentBuilder:
    """A document that grows, and remembers where each part of each event stands."""

    def __init__(self) -> None:
        self.written = ""
        self.spans: dict[tuple[Event, str], tuple[int, int]] = {}

    def add(self, part: str, *marks: tuple[Event, str]) -> None:
        """A word at the beginning of a sentence is written large."""
        if not self.written or self.written[-1] == ".":
            part = part[0].upper() + part[1:]
        self.written += ("" if not self.written or part in ",." else " ") + part
        for mark in marks:
            self.spans[mark] = (len(self.written) - len(part), len(self.written))


def quiz(count: int = 12_000, seed: int = 0) -> list[QuizItem]:
    """`count` different questions, the same for the same seed; those about one document stand together."""
    rng = random.Random(seed)
    found: dict[tuple[str, str], QuizItem] = {}
    while len(found) < count:
        for question in asked(rng):
            found[question.question, question.document] = question
    return list(found.values())[:count]


def split(question: QuizItem) -> str:
    """'train', 'valid' or 'test', decided by the document: all questions about it go together."""
    share = int.from_bytes(blake2b(question.document.encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 3 else "test" if share < 6 else "train"


def a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def asked(rng: random.Random) -> Iterator[QuizItem]:
    """A new document, and questions of different kinds about it."""
    names = rng.sample(list(PEOPLE), rng.choice((2, 3)))
    jobs = dict(zip(names, rng.sample(JOBS, len(names)), strict=True)) if rng.random() < 0.5 else {}
    happened = events(names, rng)
    text = told(happened, jobs, rng)
    if text.written.count(".") not in SENTENCES or not SHORTEST <= len(text.written.split()) <= LONGEST:
        return
    made = 0
    for kind in rng.sample(list(GIVEN), len(GIVEN)):
        answers = {event: text.written[slice(*span)] for (event, part), span in text.spans.items() if part == kind}
        if made < EACH and len({answer.lower() for answer in answers.values()}) > 1:
            event = rng.choice(list(answers))
            if words := ask(kind, event, happened, jobs, rng):
                yield QuizItem(words, text.written, answers[event], text.spans[event, kind][0])
                made += 1


def events(names: list[str], rng: random.Random) -> list[Event]:
    """What happened: the second event is much like the first, and all share a few places and times."""
    places, times, reasons = rng.sample(PLACES, 3), rng.sample(TIMES, 3), rng.sample(REASONS, 6)
    verbs, nouns = rng.sample(list(VERBS), 2), rng.sample(NOUNS, 3)

    def event(who: str, verb: str, noun: str) -> Event:
        amount = rng.choice((rng.choice(NUMBERS), rng.choice(LOOKS)))
        he, his = PEOPLE[who]
        why = reasons.pop().format(he=he, his=his) if rng.random() < 0.4 else ""
        where, when = (rng.choice(some) if rng.random() < 0.85 else "" for some in (places, times))
        return Event(who, verb, noun, amount, where, when, why)

    first = event(names[0], verbs[0], nouns[0])
    second = event(names[1], verbs[0], nouns[0])
    if rng.random() < 0.4:
        second = second._replace(amount=first.amount)
    others = [event(rng.choice(names), rng.choice(verbs), rng.choice(nouns)) for _ in range(rng.choice((2, 3, 3, 4)))]
    return rng.sample([first, second, *others], 2 + len(others))


def told(happened: list[Event], jobs: dict[str, str], rng: random.Random) -> DocumentBuilder:
    """The events as sentences. A pronoun always means whoever the sentence before is about."""
    text = DocumentBuilder()
    if jobs:
        *some, last = (f"{name} is {a(job)}" for name, job in jobs.items())
        text.add(f"{', '.join(some)} and {last}.")
    before: Event | None = None
    left = list(happened)
    while left:
        if rng.random() < 0.25:
            text.add(rng.choice([filler for filler in FILLERS if filler not in text.written]))
            before = None
        event = left.pop(0)
        apart = bool(event.why) and rng.random() < 0.5
        clause(text, event, rng.choice(ORDERS)[: -1 if apart else None], jobs, before, rng)
        before = event
        if left and left[0].who != event.who and not event.why and rng.random() < 0.4:
            text.add(",")
            text.add(rng.choice(("and", "but", "while")))
            clause(text, left.pop(0), ORDERS[0], jobs, None, rng)
            before = None
        if apart:
            text.add(".")
            text.add(f"{PEOPLE[event.who][0]} did so")
            text.add(event.why, (event, "why"))
        text.add(".")
    return text


def clause(
    text: DocumentBuilder,
    event: Event,
    order: tuple[str, ...],
    jobs: dict[str, str],
    before: Event | None,
    rng: random.Random,
) -> None:
    words = {"verb": VERBS[event.verb], "what": event.what, "where": event.where, "when": event.when, "why": event.why}
    if before and before.who == event.who and rng.random() < 0.8:
        words["who"] = PEOPLE[event.who][0]
        if (before, "who") in text.spans:
            text.spans[event, "who"] = text.spans[before, "who"]
    else:
        words["who"] = f"the {jobs[event.who]}" if jobs and rng.random() < 0.3 else event.who
    parts = [part for part in order if words[part]]
    for part in parts:
        text.add(words[part], *([(event, part)] if part != "who" or words[part] == event.who else []))
        if part == "what" and event.amount in NUMBERS:
            start, _ = text.spans[event, "what"]
            text.spans[event, "how many"] = (start, start + len(event.amount))
        if part == parts[0] and part in ("when", "where"):
            text.add(",")


def ask(kind: str, event: Event, happened: list[Event], jobs: dict[str, str], rng: random.Random) -> str:
    """A question that only this event answers, or nothing."""
    always, besides = GIVEN[kind]
    extra = [part for part in rng.sample(besides, len(besides)) if getattr(event, part)]
    more = [extra[:count] for count in range(len(extra) + 1)]
    enough = [given for given in more if is_alone(event, happened, (*always, *given))]
    if not enough:
        return ""
    given = rng.choice((enough[0], enough[0], enough[-1]))
    who = f"the {jobs[event.who]}" if jobs and rng.random() < 0.3 else event.who
    what = event.what if "amount" in given else f"the {event.noun}{'s' if event.amount in NUMBERS else ''}"
    words = {
        "who": f"who {VERBS[event.verb]} {what}",
        "what": f"what did {who} {event.verb}",
        "how many": f"how many {event.noun}s did {who} {event.verb}",
    }.get(kind, f"{kind} did {who} {event.verb} {what}")
    words = " ".join([words, *(getattr(event, part) for part in ("where", "when") if part in given)])
    return f"{words[0].upper()}{words[1:]}?"


def is_alone(event: Event, happened: list[Event], given: tuple[str, ...]) -> bool:
    return sum(all(getattr(other, part) == getattr(event, part) for part in given) for other in happened) == 1
