"""Forms in which people write mathematical answers: each group with the rule that decides it."""

from __future__ import annotations

import pytest

from campaigns.scorers.answer import score_answer
from campaigns.scorers.exact import same_number
from campaigns.scorers.verdict import Answer, Judged

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# rule, wanted, forms that mean it, forms that do not
FORMS = [
    (
        "units say nothing, of whatever length",
        "18",
        r"18 dollars|18 people|18 apples|18 eggs per day|18 units|18 (apples)|18 red apples|18 m^2|"
        r"18 cm|18cm|18 m|18 m/s|"
        r"18 km/h|18 kg m/s|18 miles per hour|18 square meters|18 meters squared|18 N|18 h|18 USD|x = 18 dollars|"
        r"18~\text{cm}|18\text{ cm}^2|18 \text{cm}^{3}|18\ \mathrm{cm}^{2}|18\,\text{km/h}|18\text{ m}|18\text{th}|"
        r"18\,\mathrm{m}/\mathrm{s}^2|18\;\text{kg}\cdot\text{m/s}|18 \text{ (dollars)}|x = 18 \text{ dollars}",
        r"19 dollars|-18 dollars|18 dollars 50 cents|18 + dollars|17 dollars or 18 dollars|18 cm by 20 cm|18 cm, 20 cm",
    ),
    (
        "letters are variables, unless a space sets a unit's letter apart",
        "18",
        "18 m|18 s|18 L",
        r"18x|18 x|18t|18c|18 t|18N|18 n|18i|18e|18 pi|18\pi|18xy|18 xy|18ab|18 ab|18abc|18 abc|18xyz|18 xyz|18pq|18mn",
    ),
    ("products of variables are no words", "12ab", "12ab|12 ba", "12|12 cm"),
    ("products of variables are no words", "6xyz", "6xyz|6 x y z", "6"),
    (
        "short units are the known ones, or marked",
        "18",
        r"18cm|18kg|18 lbs|18 min|18 sec|18mph|18 oz|18 cups|18 day|"
        r"18\text{ pt}|18\text{ pts}|18\text{m}|18dollars|18th",
        r"18sinx|18 sinx|18 cost|18\sin x|18\text{ squared}",
    ),
    ("ordinals", "21", r"21st|21\text{st}", "21nd"),
    (
        "words that change a value or say less than it are no units",
        "18",
        "about 18|approximately 18 cm",
        r"18 million|18\text{ million}|18 dozen|18 hundred|18 squared|18 more|18\text{ or more}|not 18|\text{not } 18|"
        r"more than 18|\text{at least } 18|\text{over 18}|18 or 19|17 or 18|18 is the answer|"
        r"18\text{ (or } 19)|18 \pm 1",
    ),
    ("a million is a number", "18000000", r"18 million|18\text{ million}|18 million dollars", "18|18 thousand"),
    ("a million is a number", "2500000", "2.5 million dollars|2.5 million", "2.5"),
    (
        "type faces, colours and labels say nothing",
        "18",
        r"\textcolor{red}{18}|\color{red}{18}|\color{red}18|\underline{18}|\mathbf{18}|\textbf{18}|"
        r"\text{18}|{18}|\large 18|"
        r"\text{18 eggs}|\text{18}\text{ eggs}|\mathrm{18\ eggs}|\text{18 dollars}|"
        r"\text{Answer: } 18|\text{Answer: 18}|"
        r"(18)|[18]|\{18\}|\left(18\right)|\boxed{18}|+18|18...",
        r"\text{eighteen}|\text{The answer is } 18|18:5|18\sqrt{2}|18!|18^2|18_7|-18|18-19",
    ),
    (
        "currencies say nothing, before or behind",
        "18",
        r"\$18|$18$|$18|€18|£18|¥18|18 €|USD 18|\text{\$}18|\text{\$18}|\pounds 18|\text{€}18|"
        r"\$18.00|\text{Total} = \$18",
        r"\$17|\$18.50|€-18",
    ),
    ("currencies say nothing, before or behind", "-18", r"-\$18|\$-18|-18 dollars|-18 degrees", r"\$18"),
    ("currencies say nothing, before or behind", r"\$32,\!348", r"32348|\$32,348|32{,}348|32,348 dollars", "32.348"),
    ("currencies say nothing, before or behind", "1800", r"\$1,800|1,800 dollars|1{,}800\text{ people}|1\,800", "1.8"),
    ("the percent sign is a unit, not a factor", "25", r"25 percent|25\%|25 per cent|x=25\%", "0.25|2500"),
    ("the percent sign is a unit, not a factor", r"25\%", r"25 percent|25|25\%", "0.25"),
    ("the percent sign is a unit, not a factor", r"\frac{1}{2}", "0.5", r"50\%"),
    ("the percent sign is a unit, not a factor", "18", r"18\% \text{ of the total}|18\%", r"0.18"),
    ("degrees are units", r"90^\circ", r"90|90 degrees|90°|90^{\circ}|90 degrees Celsius|90^\circ C", "91"),
    ("the wanted answer's units are left out too", r"15\mbox{ cm}^2", "15|15 cm^2|15 square centimeters", "16 cm^2"),
    ("the wanted answer's units are left out too", r"864 \mbox{ inches}^2", "864|864 in^2", r"864\pi"),
    ("the wanted answer's units are left out too", r"\frac{270}7\text{ degrees}", r"\frac{270}{7}|270/7^\circ", "38"),
    ("units stand behind other values, too", r"6\sqrt{2}", r"6\sqrt{2} cm|6\sqrt{2}\text{ cm}|\sqrt{72}", "6"),
    ("units stand behind other values, too", r"2\pi", r"2\pi cm|2\pi \text{ units}", "2"),
    ("units stand behind each of several values", "18,20", r"18 cm, 20 cm|18\text{ cm and }20\text{ cm}", "18 cm"),
    ("a variable that is named like a unit stays one", "3t", "3t|t \\cdot 3", "3|3 s"),
    ("a variable that is named like a unit stays one", "3", "3 cm", "3t|3c"),
    ("a variable that is named like a unit stays one", "2k", "2k", "2"),
    (
        "mixed numbers are sums",
        r"\frac{5}{2}",
        r"2 1/2|2\frac{1}{2}|2\,\frac12|2 + 1/2|2\tfrac{1}{2}\text{ hours}|2.5",
        r"\frac{21}{2}",
    ),
    ("mixed numbers are sums", "2.5", "2 1/2 hours|2 1/2|5/2", "2 12"),
    ("mixed numbers are sums", r"-\frac{5}{2}", r"-2\frac{1}{2}|-2 1/2", r"2\frac12|-\frac32"),
    ("mixed numbers are sums", r"\frac{14}{3}", r"4\frac{2}{3}|4 \tfrac{2}{3} hours", r"\frac{8}{3}"),
    ("mixed numbers are sums", "1", "1", r"2\frac{1}{2}"),
    (
        "fractions are values",
        r"\frac34",
        r"3/4|0.75|.75|\dfrac{3}{4}|\frac34|\frac68|"
        r"\frac34\text{ cup}|\text{\frac{3}{4} cups}|3/4 cups|\frac{3}{4} \text{ of it}",
        r"-\frac34|4/3",
    ),
    ("six digits of what no decimal can write", r"\frac13", r"0.3333333333|0.\overline{3}", "0.333|0.33"),
    ("six digits of what no decimal can write", r"\sqrt2", "1.41421356", "1.41|1.4143"),
    ("six digits of what no decimal can write", r"\pi", "3.14159265", r"3.14|\frac{22}{7}"),
    ("what a decimal can write is that decimal", "0.3", "0.30000000000000004|.3|3/10", "0.3000003|0.30001"),
    ("what a decimal can write is that decimal", "2", r"2.0|\sqrt{4}", "2.0000001|1.999999"),
    ("what a decimal can write is that decimal", "1000000", "1e6|10^6|1000000.0", "1000001.0|1000000.5"),
    ("what a decimal can write is that decimal", "0.333", "0.3330", "1/3|0.3333"),
    ("what a decimal can write is that decimal", "14.29", r"\frac{100}{7} = 14.29", r"\frac{100}{7}"),
    (
        "exact numbers differ however small they are",
        r"\frac{1}{1806!}",
        r"\frac{1}{1806!}|1/1806!",
        r"\frac{1}{1804!}|0",
    ),
    ("exact numbers differ however small they are", r"2^{-87}", r"2^{-87}|\frac{1}{2^{87}}", "2^{-88}|0|10^{-27}"),
    (
        "exact numbers differ however small they are",
        r"\frac{1}{3\cdot 2^{1006}}",
        r"\frac{2^{-1006}}{3}",
        "1/6|0.1667|0.16667",
    ),
    ("exact numbers differ however small they are", "10^{20}", "100000000000000000000", "10^{20}+1"),
    ("exact numbers differ however small they are", "0.0000001", "1e-7|10^{-7}", "0.0000002|0"),
    ("exact numbers differ however small they are", "0", "0.0", "10^{-30}|1e-9"),
    ("exact numbers differ however small they are", r"6\sqrt{2}", r"\sqrt{72}|6 \cdot 2^{1/2}", r"6\sqrt{2} + 2^{-87}"),
    ("exact numbers differ however small they are", r"7\pi", r"\pi \cdot 7", r"7\pi + 2^{-87}"),
    ("exact numbers differ however small they are", "1+2i", "2i+1", "1+2i+2^{-87}"),
    ("exact expressions differ, too", "x^3+3x-6", "3(x-2)+x^3", "x^3+3x-6+2^{-87}"),
    ("exact expressions differ, too", "(a+5)(b+2)", "ab+2a+5b+10", "(a+5)(b+2)+10^{-30}"),
    ("exact expressions differ, too", r"1 \pm \sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}", r"1 \pm \sqrt{19} + 2^{-87}"),
    ("exact numbers differ inside of something, too", "(2^{-87}, 1)", r"(\frac{1}{2^{87}}, 1)", "(2^{-88}, 1)"),
    ("exact numbers differ inside of something, too", "2^{-87}, 1", "1, 2^{-87}", "2^{-88}, 1"),
    ("brackets are part of an interval or a point", "(1,2)", "(1,2)|1<x<2", "[1,2]|(2,1)"),
    ("brackets are part of an interval or a point", "[1,2]", r"[1,2]|1 \le x \le 2", "(1,2)|1 < x < 2"),
    ("brackets are part of an interval or a point", "[1,2)", "[1,2)", "[1,2]"),
    ("an inequality is the interval it says", r"(-\infty,3]", r"x \le 3|x\in(-\infty,3]|x \leq 3", r"x < 3|x \ge 3|3"),
    ("an inequality is the interval it says", "x>3", r"3<x|(3,\infty)|x > 3", r"x<3|x \ge 3"),
    ("unions", r"[0,3)\cup(3,\infty)", r"[0,3) \cup (3,\infty)", r"[0,\infty)"),
    (
        "sets have no order, and a list is a set",
        "1,2",
        r"2,1|\{1,2\}|1 \text{ and } 2|1 and 2|x=1 \text{ or } x=2|(1,2)",
        "1, 2, 3|1",
    ),
    ("sets have no order, and a list is a set", r"\{1,2\}", r"\{2,1\}", r"\{1,3\}"),
    ("sets have no order, and a list is a set", "1,-2", "-2,1|x=1, x=-2|x=1,-2", "1,2"),
    (
        "sets have no order, and a list is a set",
        r"1 \pm \sqrt{19}",
        r"1 \pm \sqrt{19}|1+\sqrt{19}, 1-\sqrt{19}",
        r"1 + \sqrt{19}",
    ),
    (
        "matrices are their entries in their places",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\begin{bmatrix}1\\2\end{bmatrix}|\begin{pmatrix}1.0\\ 2\end{pmatrix}",
        r"\begin{pmatrix}2\\1\end{pmatrix}|(1,2)",
    ),
    (
        "matrices are their entries in their places",
        r"\begin{pmatrix}1/2&2\\3&4\end{pmatrix}",
        r"\begin{pmatrix}0.5&2\\3&4\end{pmatrix}",
        r"\begin{pmatrix}1/2&3\\2&4\end{pmatrix}",
    ),
    (
        "texts are compared without case and type face",
        r"\text{Evelyn}",
        r"Evelyn|evelyn|\textbf{Evelyn}",
        r"\text{Carla}",
    ),
    ("texts are compared without case and type face", r"\text{(C)}", r"C|(C)|\textbf{(C)}", "C. 18|D"),
    ("texts are compared without case and type face", r"\text{odd}", "odd|Odd", r"even|\text{odd function}"),
    ("the last side of an equation counts", "5", "x=5|5 o'clock", "x=6"),
    ("the last side of an equation counts", "2x+3", "y=2x+3|3+2x", "2x-3"),
    (
        "sides in one unit must agree",
        "18",
        r"0.18\text{ m} = 18\text{ cm}",
        r"17 dollars = 18 dollars|17\text{ cm} = 18\text{ cm}",
    ),
    ("a base that was asked for need not be repeated", "4210_5", "4210_{5}|4210", "4210_7|4211"),
    ("powers of ten are values", r"5 \times 10^5", r"500000|5 \times 10^5 \text{ m}|5\cdot10^{5}", "50000"),
    ("complex numbers", "6 - 5i", r"6-5i|-5i+6|6 - 5i\text{ cm}|6-5i units", "6+5i|6"),
]


def verdict(wanted: str, text: str) -> Judged:
    return score_answer("x", wanted, Answer(text)).outcome


@pytest.mark.parametrize(("rule", "wanted", "right", "wrong"), FORMS, ids=[f"{r}: {w}" for r, w, *_ in FORMS])
def test_a_boxed_form_means_what_people_mean_by_it(rule: str, wanted: str, right: str, wrong: str) -> None:
    refused = [form for form in right.split("|") if verdict(wanted, f"\\boxed{{{form}}}") is not Judged.PASSED]
    taken = [form for form in wrong.split("|") if verdict(wanted, f"\\boxed{{{form}}}") is not Judged.FAILED]
    assert not refused and not taken, rule


@pytest.mark.parametrize(
    ("wanted", "forms"),
    [
        (
            "18",
            r"18 dollars|18 m^2|$18|\$18|18 €|18 percent|18\text{ cm}^2|18~\text{cm}|\text{18 eggs}|18 km/h|18^\circ",
        ),
        ("0.0000001", "1e-7"),
        ("1800", r"1,800 people|\$1,800|1{,}800|1\,800 m"),
        ("2500000", r"2.5 million dollars|2.5\text{ million}"),
        (r"\frac{5}{2}", r"2 1/2 hours|2\frac{1}{2}\text{ hours}|2\,\frac12|5/2|2.5"),
        (r"\frac{3}{4}", r"\frac{3}{4}|\dfrac34|3/4 of the cake|0.75"),
        ("-18", r"-18 degrees|-$18|-\$18"),
    ],
)
def test_without_a_box_the_same_forms_mean_the_same(wanted: str, forms: str) -> None:
    refused = [form for form in forms.split("|") if verdict(wanted, f"So it is {form}.") is not Judged.PASSED]
    assert not refused


@pytest.mark.parametrize("power", [3, 40, 1000])
def test_a_change_in_the_last_place_of_an_exact_number_is_seen(power: int) -> None:
    from sympy import Rational, sqrt

    value = Rational(1, 7**power)
    assert same_number(value, Rational(7, 7 ** (power + 1)))
    assert not same_number(value, Rational(1, 7**power + 1))
    assert same_number(value * sqrt(8), 2 * value * sqrt(2)) and not same_number(value * sqrt(8), value * sqrt(7))
