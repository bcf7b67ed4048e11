use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Ascii,
    /// Words with letters of ISO-8859-1.
    Latin,
    /// Words with letters outside ISO-8859-1.
    CentralEuropean,
    Cyrillic,
    Greek,
    Japanese,
    Chinese,
    Korean,
}

const ASCII: &[&str] = &[
    "Black",
    "River",
    "Night",
    "Blue",
    "Heart",
    "Silver",
    "Moon",
    "Road",
    "Fire",
    "Rain",
    "Golden",
    "Dream",
    "City",
    "Stone",
    "Light",
    "Shadow",
    "Love",
    "Time",
    "Train",
    "Summer",
    "Winter",
    "King",
    "Queen",
    "Street",
    "Dance",
    "Wild",
    "Lonely",
    "Electric",
    "Machine",
    "Velvet",
    "Paper",
    "Glass",
    "Broken",
    "Ocean",
    "Mountain",
    "Sister",
    "Brother",
    "Sunday",
    "Midnight",
    "Morning",
    "Angel",
    "Devil",
    "Garden",
    "House",
    "Window",
    "Mirror",
    "Signal",
    "Radio",
    "Star",
    "Dust",
    "Wind",
    "Thunder",
    "Honey",
    "Sugar",
    "Whisper",
    "Echo",
    "Ghost",
    "Tiger",
    "Wolf",
    "Sparrow",
    "Carousel",
    "Highway",
    "Harbour",
    "Lantern",
    "Orchid",
    "Satellite",
    "Cathedral",
    "Bones",
    "Rose",
    "Water",
    "Voodoo",
    "Empire",
    "Letters",
    "Tomorrow",
    "Yesterday",
    "Children",
    "Strangers",
    "Holiday",
    "Parade",
];
const ASCII_JOINERS: &[&str] = &[" ", " ", " ", " of ", " and the ", " & ", " in the ", " to ", " without ", "-"];
const LATIN: &[&str] = &[
    "Café",
    "Été",
    "Niño",
    "Corazón",
    "Über",
    "Straße",
    "Mädchen",
    "Déjà",
    "Noël",
    "Château",
    "Señorita",
    "Pájaro",
    "Canción",
    "Größe",
    "Frühling",
    "Åska",
    "Sjö",
    "Ængel",
    "Ørken",
    "Coração",
    "Saudação",
    "Fênix",
    "Hélène",
    "Müller",
    "Björk",
    "Sigur",
    "Ólafur",
    "Jónsi",
    "Garçon",
    "Liberté",
    "Naïve",
    "Façade",
    "L'été",
    "d'Amour",
];
const CENTRAL_EUROPEAN: &[&str] = &[
    "Dvořák",
    "Šest",
    "Žluté",
    "Kůň",
    "Łódź",
    "Święty",
    "Gdańsk",
    "Księżyc",
    "Tűz",
    "Őszi",
    "Füst",
    "İstanbul",
    "Gökyüzü",
    "Çiçek",
    "Şarkı",
    "Căluşari",
    "Ţară",
    "Đorđe",
    "Čekam",
    "Větrník",
];
const CYRILLIC: &[&str] = &[
    "Кино",
    "Звезда",
    "Группа",
    "крови",
    "Ночь",
    "Последний",
    "герой",
    "Весна",
    "Дорога",
    "Алиса",
    "Любовь",
    "Снег",
    "Москва",
    "Осень",
    "Солнце",
    "Поезд",
    "Ветер",
    "Машина",
    "времени",
    "Город",
    "Тишина",
    "Река",
    "Море",
    "Чайф",
];
const GREEK: &[&str] =
    &["Θάλασσα", "Νύχτα", "Ουρανός", "Αγάπη", "Δρόμος", "Φεγγάρι", "Καρδιά", "Ήλιος", "Τραγούδι", "Όνειρο", "Βροχή"];
const JAPANESE: &[&str] = &[
    "夜",
    "東京",
    "さくら",
    "ドリーム",
    "スター",
    "ラブ",
    "恋",
    "花火",
    "夏",
    "海",
    "空",
    "ロック",
    "レディオ",
    "の",
    "ひかり",
    "時間",
    "少女",
    "メモリー",
    "雨",
    "風",
];
const CHINESE: &[&str] = &[
    "月亮",
    "代表",
    "我的心",
    "爱情",
    "城市",
    "天空",
    "夜曲",
    "青花瓷",
    "海阔天空",
    "红豆",
    "十年",
    "朋友",
    "童话",
    "江南",
];
const KOREAN: &[&str] =
    &["사랑", "바람", "하늘", "봄날", "서울", "거짓말", "눈물", "별", "여름", "안녕", "기억", "노래"];

impl Script {
    pub fn draw(random: &mut Random) -> Script {
        match random.below(100) {
            0..=61 => Script::Ascii,
            62..=77 => Script::Latin,
            78..=81 => Script::CentralEuropean,
            82..=88 => Script::Cyrillic,
            89..=90 => Script::Greek,
            91..=95 => Script::Japanese,
            96..=97 => Script::Chinese,
            _ => Script::Korean,
        }
    }

    fn words(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Script::Ascii => (ASCII, ASCII_JOINERS),
            Script::Latin => (LATIN, ASCII_JOINERS),
            Script::CentralEuropean => (CENTRAL_EUROPEAN, &[" "]),
            Script::Cyrillic => (CYRILLIC, &[" ", " ", " и "]),
            Script::Greek => (GREEK, &[" "]),
            Script::Japanese => (JAPANESE, &["", "", "・"]),
            Script::Chinese => (CHINESE, &[""]),
            Script::Korean => (KOREAN, &[" "]),
        }
    }
}

pub fn title(random: &mut Random, script: Script) -> String {
    let count = random.between(1, 4);
    let mut out = String::new();
    for index in 0..count {
        let script = if random.chance(1500) { Script::Ascii } else { script };
        let (words, joiners) = script.words();
        if index > 0 {
            out.push_str(random.pick(joiners));
        }
        out.push_str(random.pick(words));
    }
    if random.chance(900) {
        out.push_str(random.pick(&[" (Live)", " (Remix)", " [Disc 1]", " [Disc 2]", ", Vol. 2", " '97", "?", "!"]));
    }
    out
}

pub fn artist(seed: u64, number: u64) -> (String, Script) {
    if number == 0 {
        return ("Various".to_owned(), Script::Ascii);
    }
    let mut random = Random::of(seed ^ 0xa57, number);
    let script = Script::draw(&mut random);
    let mut name = title(&mut random, script);
    if script == Script::Ascii && random.chance(3000) {
        name.insert_str(0, "The ");
    }
    if random.chance(8000) {
        name.push(' ');
        name.push_str(&invented_word(&mut random));
    }
    (name, script)
}

fn invented_word(random: &mut Random) -> String {
    const ONSETS: &[&str] = &["b", "br", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v", "z", "sh"];
    const REST: &[&str] = &["a", "e", "i", "o", "u", "an", "el", "in", "or", "us", "ay", "ett", "ow", "ick"];
    let mut word = String::new();
    for _ in 0..random.between(2, 4) {
        word.push_str(random.pick(ONSETS));
        word.push_str(random.pick(REST));
    }
    word[..1].make_ascii_uppercase();
    word
}

pub fn prose(random: &mut Random, script: Script, bytes: usize) -> String {
    let mut out = String::new();
    while out.len() < bytes {
        if !out.is_empty() {
            out.push_str(random.pick(&[" ", " ", " ", ", ", ". ", "\n", " / ", "\t", " \\ "]));
        }
        let (words, _) = script.words();
        out.push_str(random.pick(words));
    }
    out
}
