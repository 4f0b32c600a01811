"""The control tokens of Whisper's vocabularies: what an answer begins with, languages, tasks and timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headway.errors import InputError, did_you_mean
from headway.preprocess.text import Tokenizer

SpeechTask = Literal["transcribe", "translate"]
TIMESTAMPS = 1501  # from 0 to 30 seconds, 0.02 apart
LANGUAGE_TABLE = (  # code and name, in the order of their tokens
    "en english,zh chinese,de german,es spanish,ru russian,ko korean,fr french,ja japanese,pt portuguese,tr turkish,"
    "pl polish,ca catalan,nl dutch,ar arabic,sv swedish,it italian,id indonesian,hi hindi,fi finnish,vi vietnamese,"
    "he hebrew,uk ukrainian,el greek,ms malay,cs czech,ro romanian,da danish,hu hungarian,ta tamil,no norwegian,"
    "th thai,ur urdu,hr croatian,bg bulgarian,lt lithuanian,la latin,mi maori,ml malayalam,cy welsh,sk slovak,"
    "te telugu,fa persian,lv latvian,bn bengali,sr serbian,az azerbaijani,sl slovenian,kn kannada,et estonian,"
    "mk macedonian,br breton,eu basque,is icelandic,hy armenian,ne nepali,mn mongolian,bs bosnian,kk kazakh,"
    "sq albanian,sw swahili,gl galician,mr marathi,pa punjabi,si sinhala,km khmer,sn shona,yo yoruba,so somali,"
    "af afrikaans,oc occitan,ka georgian,be belarusian,tg tajik,sd sindhi,gu gujarati,am amharic,yi yiddish,lo lao,"
    "uz uzbek,fo faroese,ht haitian creole,ps pashto,tk turkmen,nn nynorsk,mt maltese,sa sanskrit,lb luxembourgish,"
    "my myanmar,bo tibetan,tl tagalog,mg malagasy,as assamese,tt tatar,haw hawaiian,ln lingala,ha hausa,ba bashkir,"
    "jw javanese,su sundanese,yue cantonese"
)
LANGUAGES = {code: name for code, _, name in (entry.partition(" ") for entry in LANGUAGE_TABLE.split(","))}
WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # languages that do not separate words
SIGNS, MUSIC = '"#()*+/:;<=>@[\\]^_`{|}~「」『』', "♩♪♫♬♭♮♯"
SIGN_GROUPS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
NAMES = {  # field → its token, and what older files call it
    "start": ("<|startoftranscript|>",),
    "end": ("<|endoftext|>",),
    "translate": ("<|translate|>",),
    "transcribe": ("<|transcribe|>",),
    "start_of_lm": ("<|startoflm|>",),
    "previous": ("<|startofprev|>",),
    "no_speech": ("<|nospeech|>", "<|nocaptions|>"),
    "no_timestamps": ("<|notimestamps|>",),
}


def control_tokens(languages: int) -> list[str]:
    """All control tokens in the order of their ids, which follow those of the text; `languages` is their number."""
    first, *rest = (names[0] for name, names in NAMES.items() if name not in ("start", "end"))
    marks = [f"<|{code}|>" for code in list(LANGUAGES)[:languages]]
    stamps = [f"<|{number * 0.02:.2f}|>" for number in range(TIMESTAMPS)]
    return ["<|endoftext|>", "<|startoftranscript|>", *marks, first, *rest, *stamps]


@dataclass(frozen=True)
class SpeechTokens:
    start: int
    end: int  # text has lower ids
    translate: int
    transcribe: int
    start_of_lm: int
    previous: int  # text of the window before follows
    no_speech: int
    no_timestamps: int
    languages: Mapping[str, int] = field(default_factory=dict)  # code → id; empty: the model knows English alone

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, multilingual: bool) -> SpeechTokens | None:
        """None if the vocabulary is not one of Whisper's."""
        found = {name: _first_id(tokenizer, tokens) for name, tokens in NAMES.items()}
        if None in found.values():
            return None
        codes = {code: tokenizer.id(f"<|{code}|>") for code in LANGUAGES} if multilingual else {}
        languages = {code: id for code, id in codes.items() if id is not None}
        return cls(**found, languages=languages)  # type: ignore[arg-type]

    @property
    def first_timestamp(self) -> int:
        return self.no_timestamps + 1

    def forced(self, *, language: str, task: SpeechTask, timestamps: bool) -> list[int]:
        """What follows the start: language and task of a multilingual model, and that there are no timestamps."""
        known = [self.languages[language], getattr(self, task)] if self.languages else []
        return known if timestamps else [*known, self.no_timestamps]

    def never_generated(self) -> list[int]:
        """Control tokens that no answer contains, whatever the model's files say."""
        return [self.transcribe, self.translate, self.start, self.previous, self.start_of_lm, self.no_speech]


def language_code(name: str, known: Iterable[str]) -> str:
    """The code of a language given by its code or its English name."""
    codes, wanted = list(known), name.strip().lower()
    by_name = {LANGUAGES[code]: code for code in codes if code in LANGUAGES}
    if wanted in codes or wanted in by_name:
        return by_name.get(wanted, wanted)
    hint = did_you_mean(wanted, [*codes, *by_name], otherwise=f"codes: {', '.join(codes)}")
    raise InputError(f"language {name!r} is not one that the model knows; {hint}")


def text_of(ids: Sequence[int], tokenizer: Tokenizer, *, end: int) -> str:
    """The text of an answer without its control tokens; bytes that are no whole character are shown as U+FFFD."""
    return b"".join(tokenizer.bytes_of(id) for id in ids if id < end).decode("utf-8", errors="replace")


def non_speech_ids(tokenizer: Tokenizer) -> list[int]:
    """Tokens of notes and speaker names, such as ( and ♪, that are not spoken: signs of one token, alone and after a
    space; of musical notes, which are several tokens in some vocabularies, the first; a hyphen and an apostrophe at
    the beginning of a word."""
    out = {tokenizer.encode(sign, special=False)[0] for sign in (" -", " '")}
    for sign in [*SIGNS, *SIGN_GROUPS.split(" "), *MUSIC]:
        for ids in (tokenizer.encode(sign, special=False), tokenizer.encode(" " + sign, special=False)):
            if len(ids) == 1 or sign in MUSIC:
                out.add(ids[0])
    return sorted(out)


def _first_id(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    return next((id for id in map(tokenizer.id, names) if id is not None), None)
