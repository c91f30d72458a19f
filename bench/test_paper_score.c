/* SPDX-License-Identifier: Apache-2.0 */
/* The class of a row follows the rule in docs/papers/README.md. */
#include "paper_score.h"

static score_row above(double value)
{
    return (score_row){
        .value = value, .low = 1, .has_low = true, .is_ratio = true};
}

/* A direction of a ratio or a difference, which is `none` without the effect.
 */
static score_row above_from(double value, double none)
{
    score_row r = above(value);

    r.has_none = true;
    r.none = none;
    return r;
}

static score_row range(double value, double low, double high)
{
    score_row r = score_number(value, low);

    r.high = high;
    return r;
}

int main(void)
{
    const struct {
        score_row row;
        score_class as, expected;
    } rows[] = {
        {score_ratio(1.29, 1.30), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        /* 4.8 % apart, with a quarter of the effect */
        {score_ratio(1.019, 1.07), SCORE_INFORMATIVE, SCORE_TRIVIAL},
        {score_ratio(0.97, 0.94), SCORE_VARIANT, SCORE_TRIVIAL},
        /* 1 is 10.7 % below 1.12 */
        {score_ratio(1.10, 1.12), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        /* does not agree */
        {score_ratio(1.20, 1.07), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        /* no ratio */
        {score_number(1.07, 1.07), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        {score_ratio(1.07, 1.07), SCORE_FITTED, SCORE_FITTED},
        /* 3 ms are no effect: 100 ms are 2.9 % below 103 */
        {score_effect(103, 103, 100), SCORE_INFORMATIVE, SCORE_TRIVIAL},
        {score_effect(100, 103, 100), SCORE_VARIANT, SCORE_TRIVIAL},
        /* half of 9 ms: 104.5 ms are 4.1 % below 109 */
        {score_effect(108, 109, 100), SCORE_INFORMATIVE, SCORE_TRIVIAL},
        /* 100 ms are 10.7 % below 112 */
        {score_effect(111, 112, 100), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        /* does not agree */
        {score_effect(100, 109, 100), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        {score_effect(103, 103, 100), SCORE_FITTED, SCORE_FITTED},
        {above(1.004), SCORE_INFORMATIVE, SCORE_TRIVIAL},
        {above(1.006), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        {above(0.996), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        /* the direction holds without the effect, too */
        {above_from(1.2, 1.1), SCORE_INFORMATIVE, SCORE_TRIVIAL},
        {above_from(1.2, 0.9), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        {above_from(0.9, 1.1), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
        {above_from(1.2, 1.1), SCORE_FITTED, SCORE_FITTED},
        {range(1.5, 1.0, 1.6), SCORE_INFORMATIVE, SCORE_TRIVIAL},
        {range(1.5, 1.1, 1.6), SCORE_INFORMATIVE, SCORE_INFORMATIVE},
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        score s = {.numbers = {0}};
        const score_class got = score_add(&s, &rows[i].row, rows[i].as);

        if (got != rows[i].expected ||
            s.numbers[got] + s.directions[got] != 1) {
            fprintf(stderr, "test-paper-score: row %zu is %s\n", i,
                    score_name(got));
            failed = 1;
        }
    }
    return failed;
}
