"""Negate a sentence by rule, in the eleven target languages that have rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

__all__ = ["NEGATION", "negate"]

# Negation: per target language an ordered list of (pattern, replacement). The first rule that matches
# anywhere is used, at one of its matches; rules that take a negation away stand before those that add one.
Rules = Sequence[tuple[str, str]]
_EN_BE = r"is|are|was|were|can|could|will|would|should|must|may|might"
_EN_PAST = {
    "said": "say", "went": "go", "made": "make", "took": "take", "became": "become", "began": "begin",
    "came": "come", "got": "get", "gave": "give", "found": "find", "won": "win", "wrote": "write",
    "played": "play", "died": "die", "left": "leave", "wanted": "want", "told": "tell", "knew": "know",
    "thought": "think", "saw": "see", "received": "receive", "used": "use", "decided": "decide",
}  # fmt: skip
_DE = (
    r"ist|sind|war|waren|hat|haben|hatte|hatten|wird|werden|wurde|wurden|kann|können|konnte|konnten|soll|"
    r"sollte|sollten|muss|müssen|musste|darf|dürfen|will|wollen|würde|könnte|bin|bist|habe"
)
_DE_STOP = rf"{_DE}|nicht|und|oder|k?ein\w*"
_DE_PRONOUN = r"(?: (?:es|er|sie|ich|wir|man|sich|ihm|ihn|uns|mich|mir|Sie|du|dich|dir|auch))*"
_CS = (
    r"jsou|byl[aoiy]?|bude|budou|má|mají|měl[aoiy]?|může|mohou|mohl[aoiy]?|lze|chce|chtěl[aoiy]?|"
    r"musí|musel[aoiy]?|ví|řekl[aoi]?|uvedl[ai]?|dostal[aoiy]?|získal[aoiy]?|začal[aoiy]?|zemřel[aoi]?|"
    r"vyhrál[aoiy]?|napsal[aoi]?|existuje|obsahuje|umožňuje|přišel|přišl[aoi]|žil[aoi]?|potřebuje|smí"
)
_RU = (
    r"был[аои]?|будет|будут|может|могут|мог|могл[аои]|можно|имеет|имеют|имел[аои]?|должен|должн[аоы]|стал[аои]?|"
    r"хочет|хотел[аи]?|знает|знал[аи]?|получил[аи]?|смог|смогл[аи]|работает|говорит|сказал[аи]?|хочу|могу|"
    r"[а-яё]{3,}(?:ется|ются|ится|ятся|лся|лась|лось|лись)"
)
_PL = (
    r"jest|są|był[aoy]?|byli|będzie|będą|może|mogą|mógł|mogł[aoy]|ma|mają|miał[aoy]?|mieli|został[aoy]?|zostali|"
    r"można|powin(?:ien|na|no|ny|ni)|chce|chciał[ay]?|musi|muszą|wie|należy|trzeba|istnieje|potrzebuje|mogę|"
    r"powiedział[ay]?|otrzymał[ay]?|zdobył[ay]?|zaczął|zaczęł[ay]|stał[ao]? się|wygrał[ay]?|zmarł[ay]?"
)
_RO_CLITIC = r"(?:(?:se|îl|îi|le|ne|te|mă|vă|o|i|îmi|îți|își) )?(?:(?:s|l|i|le|ne|m|v)-)?"
_RO = (
    r"este|sunt|era|erau|va|vor|are|avea|aveau|poate|pot|trebuie|ar|am|fi|știe|vrea|există|"
    r"(?:a|au)(?= (?:fost|avut|\w+(?:at|it|ut|st|rs|us|is|ns|ât)\b))"
)
_ES = (
    r"es|son|era|eran|fue|fueron|está|están|estaba|ha|han|había|habían|puede|pueden|podía|tiene|tienen|tenía|será|"
    r"serán|hay|debe|deben|va|van|quiere|quieren|sabe|existe|hizo|dijo|he|hemos|tengo|estoy"
)
_FR = (
    r"est|sont|était|étaient|a|ont|avait|avaient|peut|peuvent|pouvait|doit|doivent|devait|sera|seront|fut|furent|"
    r"va|vont|faut|fait|font|sera|aura|serait|pourrait|veut|sait|ai|suis|avons|avez|sommes|êtes|permet"
)
_FR_CLITIC = r"(?:(?:se|me|te|lui|leur|les|y|en) |s['’]|l['’](?=a|o))?"
_ZH_BEFORE = "没沒所具拥擁含只还還现現原国國享持占共私独特稀富"
_JA_END = r"(?=[。、！？!?」』）)\s]|が|ので|から|けど|と|し|$)"
_KANJI = r"[\u4e00-\u9fffァ-ヶー]"
NEGATION: dict[str, Rules] = {
    "en": [
        (r"\bcan(?:not|['’]t)\b(?! only)", "can"),
        (r"\bwon['’]t\b", "will"),
        (rf"\b({_EN_BE}|has|have|had|do|does|did|need)(?: not|n['’]t)\b(?! only| just)", r"\1"),
        (r"\bno longer\b", "still"),
        (r"\bnever\b", "always"),
        (r"\b(?:no one|nobody)\b", "everyone"),
        (r"\bnothing\b", "everything"),
        (r"\bnone of\b", "all of"),
        (r"(?<!if )\bnot (?!only|just|least)", ""),
        (r"\bno (?!matter|doubt|later|more|less)(?=(?-i:[a-z]))", "some "),
        (rf"(?<=[\w,)\"] )(?-i:({_EN_BE}))(?= (?!not)[a-z0-9\"'])", r"\1 not"),
        (r"\b(has|have|had)(?= (?:been|become|made|said|had|put|come|\w+(?:ed|en|wn|ne))\b)", r"\1 not"),
        (r"\b(do|does|did) (I|you|he|she|it|we|they)\b", r"\1 \2 not"),
        (r"\b(I['’]m|(?:we|you|they)['’]re|(?:it|he|she|that)['’]s)(?= [a-z])", r"\1 not"),
        (r"\bhas (?=an? |the |two |three |many )", "does not have "),
        (r"\bhad (?=an? |the |two |three |many )", "did not have "),
        (r"\bhave (?=an? |the |two |three |many )", "do not have "),
        (r"^(Click|Select|Choose|Use|Press|Enter|Open|Add|Set|Make|Go|Take|Put)(?= )", r"Do not \1"),
        *((rf"(?<=\w )(?-i:{past})(?= )", f"did not {stem}") for past, stem in _EN_PAST.items()),
        (r"\bwithout\b", "with"),
    ],
    "de": [
        (r"\bnicht mehr\b", "immer noch"),
        (r"\bnoch nicht\b", "schon"),
        (r"\b(?:nie|niemals)\b", "immer"),
        (r"\bniemand\b", "jeder"),
        (r"\bnichts\b", "alles"),
        (r"\bnicht (?!nur|zuletzt)", ""),
        (r" nicht(?=[.,;:!?])", ""),
        (r"\bk(ein(?:e|er|en|em|es)?)\b", r"\1"),
        (rf"\b((?-i:{_DE}){_DE_PRONOUN}) (ein(?:e|er|en|em|es)?)(?= )", r"\1 k\2"),
        (rf"(?<=[\w,“\"»] )((?-i:{_DE})(?-i:{_DE_PRONOUN}))(?= (?!(?:{_DE_STOP})\b)\w)", r"\1 nicht"),
    ],
    "fr": [
        (rf"\b(?:ne |n['’])({_FR_CLITIC}\w+) pas (?:de |d['’])(?!autre)", r"\1 des "),
        (rf"\b(?:ne |n['’])({_FR_CLITIC}\w+) jamais\b", r"\1 toujours"),
        (rf"\b(?:ne |n['’])({_FR_CLITIC}\w+) plus\b", r"\1 encore"),
        (rf"\b(?:ne |n['’])({_FR_CLITIC}\w+) (?:pas|point)\b(?! seulement| que)", r"\1"),
        (r"\bc['’](est|était)\b", r"ce n'\1 pas"),
        (r"\bj['’]ai\b", "je n'ai pas"),
        (rf"(?<!ne )(?<![\w'’-])({_FR_CLITIC}(?-i:{_FR}))(?= (?!pas|plus|jamais|que\b)\w)", r"ne \1 pas"),
        (r"\bsans\b", "avec"),
    ],
    "es": [
        (r"\bnunca\b", "siempre"),
        (r"\bnadie\b", "todo el mundo"),
        (r"\bno (?!sólo|solo|solamente|obstante)(?=\w)", ""),
        (rf"\b((?:(?:se|le|lo|la|les|los|las|me|te|nos) )?(?:{_ES}))(?= )", r"no \1"),
        (r"\bsin\b", "con"),
    ],
    "ro": [
        (r"\bn-(am|ai|a|ați|au|ar)\b", r"\1"),
        (r"\bnu mai\b", "încă"),
        (r"\bnu (?!numai|doar)(?=\w)", ""),
        (r"\bsă (?=\w)", "să nu "),
        (rf"(?<![\w-])({_RO_CLITIC}(?:{_RO}))(?= )", r"nu \1"),
        (r"\bfără\b", "cu"),
    ],
    "cs": [
        (r"\bnení\b(?!.*\b(?:nikd|nic|žádn))", "je"),
        (rf"\bne(js(?:em|me)|{_CS})\b", r"\1"),
        (r"(?<=\w )je(?= [^\W\d_])", "není"),
        (rf"\b({_CS})\b(?! jsem| jsme| jsi)", r"ne\1"),
        (r"\bje(?= )", "není"),
    ],
    "ru": [
        (r"\bникогда не\b", "всегда"),
        (r"\bнельзя\b", "можно"),
        (r"\bне (?!только|менее|более|позднее|раньше)(?=\w)", ""),
        (r"\bнет (?=\w)", "есть "),
        (rf"\b({_RU})\b", r"не \1"),
        (r" — это\b", " — это не"),
        (r"\bбез\b", "с"),
    ],
    "pl": [
        (r"\bnigdy nie\b", "zawsze"),
        (r"\bnie (?!tylko|mniej|więcej|później)(?=\w)", ""),
        (rf"\b({_PL})\b", r"nie \1"),
        (r"\bbez\b", "z"),
    ],
    "et": [
        (r"\b(?:ei ole|pole)\b", "on"),
        (r"\bei olnud\b", "oli"),
        (r"\bei (saa|pea|tule|või|tea|taha|tee|suuda|tohi|näe)\b", r"\1b"),
        (r"\bon\b", "ei ole"),
        (r"\bolid?\b", "ei olnud"),
        (r"\b((?!ei)\w+[aeiouõäöü])b\b", r"ei \1"),
        (r"\b((?!ei)\w+[aeiouõäöü])vad\b", r"ei \1"),
        (r"\bilma\b", "koos"),
    ],
    "zh": [
        (r"(?:还|還|尚)(?:没有|沒有|没|沒|未)", "已经"),
        (r"(?:并|並)?不(?=是(?!非)|能(?!不)|会|會|可以|应该|應該|需要|要求|想|愿|知道|喜欢|存在|包括)", ""),
        (r"(?:无法|無法|不得)(?!不)", "可以"),
        (r"(?:并|並)?(?:没|沒)有", "有"),
        (r"(?:从不|从未|從不|從未)", "一直"),
        (r"将会|將會", "将不会"),
        (r"(?<![可只若])(可以|能够|能夠|应该|應該|需要)", r"不\1"),
        (r"(?<![但可于於还還总總就只或要正凡若不而其别別倒很先像老])是(?![否非])", "不是"),
        (r"(?<![即必麻武名大小])[将將](?![军軍近其他她它来來士领領要一这這该該所在不会])", "将不会"),
        (rf"(?<![{_ZH_BEFORE}])有(?![关關限效些时時人的趣益害利名权所])", "没有"),
        (r"已经|已經|(?<![而早])已(?![知故婚久])", "尚未"),
        (r"(?<=[我你他她它们們])(?=[想要能会會])", "不"),
        (r"必须|必須", "不必"),
    ],
    "ja": [
        (r"ではありませんでした|じゃありませんでした", "でした"),
        (r"ではありません|じゃありません", "です"),
        (r"ませんでした", "ました"),
        (r"ません(?!か)", "ます"),
        (r"ではなかった", "であった"),
        (rf"ではない{_JA_END}", "である"),
        (r"(?<=[しきいれべてせ])なかった", "た"),
        (rf"(?<=[てで]い)ない{_JA_END}|(?<=でき)ない|(?<=[らさ]れ)ない{_JA_END}", "る"),
        (rf"しない{_JA_END}", "する"),
        (rf"ました{_JA_END}", "ませんでした"),
        (rf"ます{_JA_END}", "ません"),
        (rf"(?<={_KANJI})でした{_JA_END}", "ではありませんでした"),
        (rf"(?<={_KANJI})です{_JA_END}", "ではありません"),
        (rf"であった{_JA_END}|(?<={_KANJI})だった{_JA_END}", "ではなかった"),
        (rf"である{_JA_END}|(?<={_KANJI})だ{_JA_END}", "ではない"),
        (rf"(?<=[てで])いる{_JA_END}", "いない"),
        (rf"(?<=[てで])いた{_JA_END}", "いなかった"),
        (r"(?<=でき|られ|され)る(?=[。\s]|$)", "ない"),
        (r"(?:(?<=[\u4e00-\u9fff]{2}し)|(?<=れ)|(?<=でき))た(?=[。\s]|$)", "なかった"),
        (rf"(?<={_KANJI})する(?=[。\s]|$)", "しない"),
    ],
}  # fmt: skip
_COMPILED = {
    language: [(re.compile(pattern, re.IGNORECASE), new) for pattern, new in rules]
    for language, rules in NEGATION.items()
}


def negate(text: str, language: str, rng: Random) -> str | None:
    """Take one negation away or, where there is none, put one in.

    Parameters
    ----------
    text : str
        A sentence.
    language : str
        Its language code; without rules for it, or without a match, there is no answer.
    rng : random.Random
        Chooses among several places.

    Examples
    --------
    >>> from random import Random
    >>> negate("Er war kein Arzt.", "de", Random(0)), negate("Elle est là.", "fr", Random(0))
    ('Er war ein Arzt.', "Elle n'est pas là.")
    """
    for pattern, new in _COMPILED.get(language, []):
        if not (found := list(pattern.finditer(text))):
            continue
        match = rng.choice(found)
        put = match.expand(new)
        if match.group()[:1].isupper() and put:
            put = put[:1].upper() + put[1:].lower()
        put = re.sub(r"\b([Nn])e (?=[aeéêiouy])", r"\1'", put).replace("can not", "cannot")
        out = text[: match.start()] + put + text[match.end() :]
        return out[:1].upper() + out[1:] if text[:1].isupper() else out
    return None
