"""The verbs of the phrasebook with their complements: cases and noun groups of objects, places, goals."""

from regard.modalities.synthetic.german.lexicon import SETS
from regard.modalities.synthetic.german.word_forms import Modal, tagged, verb

VERBS = tuple(
    verb(entry, SETS)
    for entry in """\
eat/ate/eaten       : essen isst gegessen               : acc snacks food, ?place anywhere
drink/drank/drunk   : trinken trinkt getrunken          : acc drinks drinks portions, ?place anywhere
read/read/read      : lesen liest gelesen               : acc text, ?place anywhere
write/wrote/written : schreiben schreibt geschrieben    : acc writing stories
buy/bought/bought   : kaufen kauft gekauft              : acc goods gifts print snacks food
sell/sold/sold      : verkaufen verkauft verkauft       : acc goods
order               : bestellen bestellt bestellt       : acc snacks food drinks portions
open                : öffnen öffnet geöffnet            : acc openings luggage, please
close               : schließen schließt geschlossen    : acc openings, please
clean               : putzen putzt geputzt              : acc openings rooms, please
wash                : waschen wäscht gewaschen          : acc vehicles clothes
repair              : reparieren repariert repariert    : acc vehicles devices, please
carry               : tragen trägt getragen             : acc luggage, please
wear/wore/worn      : tragen trägt getragen             : acc clothes
take/took/taken     : nehmen nimmt genommen             : acc transport
draw/drew/drawn     : zeichnen zeichnet gezeichnet      : acc animals
look                : suchen sucht gesucht              : for/ acc items animals person
find/found/found    : finden findet gefunden            : acc items animals, simple
forget/forgot/forgotten : vergessen vergisst vergessen  : acc items luggage gifts, simple, unwilled
see/saw/seen        : sehen sieht gesehen               : acc person animals, simple
visit               : besuchen besucht besucht          : acc person
meet/met/met        : treffen trifft getroffen          : acc person, ?place outside
ask                 : fragen fragt gefragt              : acc person, please
call                : an|rufen ruft angerufen           : acc person, please
invite              : ein|laden lädt eingeladen         : acc person
pick up             : ab|holen holt abgeholt            : acc person, please
turn on             : ein|schalten schaltet eingeschaltet : acc devices, please
turn off            : aus|schalten schaltet ausgeschaltet : acc devices, please
put/put/put on      : an|ziehen zieht angezogen         : acc clothes
try on              : an|probieren probiert anprobiert  : acc clothes
tidy                : auf|räumen räumt aufgeräumt       : acc rooms, please
throw/threw/thrown away : weg|werfen wirft weggeworfen  : acc print writing items
get/got/got up      : auf|stehen steht ist aufgestanden : ?manner early late
come/came/come back : zurück|kommen kommt ist zurückgekommen : ?manner early late
arrive              : an|kommen kommt ist angekommen    : place stops towns, by person transport, unwilled
help                : helfen hilft geholfen             : dat person, please
thank               : danken dankt gedankt              : dat person
follow              : folgen folgt ist gefolgt          : dat person animals
answer              : antworten antwortet geantwortet   : dat person, please
listen              : zu|hören hört zugehört            : to/ dat person
give/gave/given     : geben gibt gegeben                : dat person, acc small, please
show/showed/shown   : zeigen zeigt gezeigt              : dat person, acc small writing clothes vehicles, please
bring/brought/brought : bringen bringt gebracht         : dat person, acc drinks snacks portions, please
send/sent/sent      : schicken schickt geschickt        : dat person, acc writing gifts, please
lend/lent/lent      : leihen leiht geliehen             : dat person, acc vehicles luggage print clothes, please
tell/told/told      : erzählen erzählt erzählt          : dat person, acc stories, please
wait                : warten wartet gewartet            : for/auf acc person transport, ?place outside
think/thought/thought : denken denkt gedacht            : of/an acc person, unwilled
talk                : sprechen spricht gesprochen       : to/mit dat person, ?place outside
play                : spielen spielt gespielt           : ?with/mit dat animals, ?place outside
dance               : tanzen tanzt getanzt              : ?with/mit dat person
dream/dreamt/dreamt : träumen träumt geträumt           : of/von dat vehicles clothes, unwilled
sleep/slept/slept   : schlafen schläft geschlafen       : ?place rooms inside home, by person animals
work                : arbeiten arbeitet gearbeitet      : ?place anywhere, ?manner quickly slowly
sing/sang/sung      : singen singt gesungen             : ?manner loudly quietly, ?place anywhere
laugh               : lachen lacht gelacht              : ?manner loudly quietly
swim/swam/swum      : schwimmen schwimmt ist geschwommen : ?manner quickly slowly
sit/sat/sat         : sitzen sitzt gesessen             : spot, present, by person animals
lie/lay/lain        : liegen liegt gelegen              : spot, present, by items print clothes
stand/stood/stood   : stehen steht gestanden            : spot, present, by dishes luggage
put/put/put         : legen legt gelegt                 : acc items print clothes, onto, please
put/put/put         : stellen stellt gestellt           : acc dishes luggage, onto, please
live                : wohnen wohnt gewohnt              : place towns, simple, present
stay                : bleiben bleibt ist geblieben      : place anywhere
go/went/gone        : gehen geht ist gegangen           : goal near
go/went/gone        : fahren fährt ist gefahren         : goal outside school home, vehicle
drive/drove/driven  : fahren fährt ist gefahren         : goal outside home
run/ran/run         : laufen läuft ist gelaufen         : goal near
fly/flew/flown      : fliegen fliegt ist geflogen       : goal towns
need                : brauchen braucht gebraucht        : acc small devices luggage, simple, present
know/knew/known     : kennen kennt gekannt              : acc person, simple, present
understand/understood/understood : verstehen versteht verstanden : acc person, simple, present
like                : mögen mag/magst/mag gemocht       : acc food drinks, simple, present
love                : lieben liebt geliebt              : acc family parents, simple, present
""".splitlines()
)
BE = verb("be/was/been : sein ist ist gewesen : simple", SETS)._replace(
    english=("am", "are", "is", "are"),
    past=("was", "were", "was", "were"),
    ing="being",
    german=("bin", "bist", "ist", "sind"),
    preterite=("war", "warst", "war", "waren"),
    subjects=(),
    traits=frozenset({"simple", "auxiliary"}),
)
HAVE = verb(
    "have/had/had : haben habe/hast/hat gehabt : acc animals vehicles items gifts luggage, simple", SETS
)._replace(english=("have", "have", "has", "have"), preterite=("hatte", "hattest", "hatte", "hatten"))
KNOW = verb("know/knew/known : wissen weiß/weißt/weiß gewusst : simple", SETS)  # a fact
HOPE = verb("hope : hoffen hofft gehofft : simple", SETS)
SAYING_VERBS = (
    KNOW,
    verb("think/thought/thought : glauben glaubt geglaubt : simple", SETS),
    verb("say/said/said : sagen sagt gesagt : simple", SETS),
)
RAIN = verb("rain : regnen regnet geregnet : simple", SETS)
SNOW = verb("snow : schneien schneit geschneit : simple", SETS)
SHINE = verb("shine/shone/shone : scheinen scheint geschienen : simple", SETS)

MODALS = {
    "can": Modal(("can",) * 4, (), True, ("kann", "kannst", "kann", "können")),
    "may": Modal(("may",) * 4, (), True, ("darf", "darfst", "darf", "dürfen")),
    "must": Modal(("must",) * 4, (), True, ("muss", "musst", "muss", "müssen")),
    "must not": Modal(("must",) * 4, (), True, ("darf", "darfst", "darf", "dürfen")),
    "should": Modal(("should",) * 4, (), True, ("sollte", "solltest", "sollte", "sollten")),
    "could": Modal(("could",) * 4, (), True, ("könnte", "könntest", "könnte", "könnten")),
    "want to": Modal(("want", "want", "wants", "want"), tagged("to/PART"), False, ("will", "willst", "will", "wollen")),
    "have to": Modal(("have", "have", "has", "have"), tagged("to/PART"), False, ("muss", "musst", "muss", "müssen")),
    "would like to": Modal(
        ("would",) * 4, tagged("like/VERB to/PART"), True, ("möchte", "möchtest", "möchte", "möchten")
    ),
}
