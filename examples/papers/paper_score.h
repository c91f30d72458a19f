/* SPDX-License-Identifier: Apache-2.0 */
/* Counts a page's rows by their evidence for the model. Each program states the
 * classes of its rows; the rule that makes rows trivial is the same on every
 * page of docs/papers. */
#ifndef PAPER_SCORE_H
#define PAPER_SCORE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Class of a row. Only informative rows are evidence. */
typedef enum score_class {
    SCORE_INFORMATIVE, /* computed without the published value */
    /* Agrees, but so would a model without any effect, or with half of it: a
     * ratio within 0.5 % of 1, a published ratio within 10 % of 1, a published
     * time within 10 % of the time without the effect, a direction with which 1
     * or the value without the effect agrees, or a published range wider than a
     * factor of 1.5. */
    SCORE_TRIVIAL,
    /* A constant of the row was chosen to match this number, or another point
     * of its curve. */
    SCORE_FITTED,
    SCORE_GIVEN, /* follows from inputs of the row: an identity */
    /* Another assumption for a row that is counted already, or arithmetic on
     * counted rows. */
    SCORE_VARIANT,
    SCORE_NOT_RUN, /* not computed: counts as not as in the paper */
    SCORE_CLASSES
} score_class;

/* Computed and published value. Without `has_low` or `has_high`, or with
 * `is_word`, the paper gives only a direction. */
typedef struct score_row {
    double value, low, high;
    bool has_low, has_high;
    bool is_ratio; /* 1 means no effect, unless `has_none` */
    /* With `has_none`: value without the effect, in the unit of `value`. */
    bool has_none;
    double none;
    /* `low` and `high` were chosen for the paper's words, such as "comparable":
     * values outside do not agree. */
    bool is_word;
} score_row;

/* Line of a page's table: a claim of the paper beside the computed value. */
typedef struct score_line {
    const char *where;   /* figure or table of the paper */
    const char *claimed; /* quantity and setting */
    const char *run;     /* how it was computed */
    score_row row;
    int digits;       /* decimals of both values */
    const char *unit; /* after both values, "" for none */
    score_class as;
    const char *why; /* of the difference, and which inputs were chosen */
} score_line;

/* Claim of the paper for which nothing was computed. */
typedef struct score_missing {
    const char *where, *claimed;
    const char *paper; /* published value or direction */
    const char *why;   /* reason */
} score_missing;

/* Counts per class. */
typedef struct score {
    uint32_t numbers[SCORE_CLASSES], within[SCORE_CLASSES];
    uint32_t directions[SCORE_CLASSES], right[SCORE_CLASSES];
    double off[SCORE_CLASSES]; /* sum of relative errors of the numbers */
} score;

/* Returns the relative error against the nearest published value; 0 inside the
 * range. Only for numbers. */
double score_error(const score_row *r);
/* Checks whether a direction matches or a number is within 5 %. */
bool score_agrees(const score_row *r);
/* Returns the row of a published number. */
score_row score_number(double value, double published);
/* Returns the row of a published ratio, for which 1 means no effect. */
score_row score_ratio(double value, double published);
/* Returns the row of a published number, which is `none` without the effect. */
score_row score_effect(double value, double published, double none);
/* Counts a row and returns its class: a row that would be informative or a
 * variant may be trivial. */
score_class score_add(score *s, const score_row *r, score_class as);
/* Returns "informative", "trivial", ... */
const char *score_name(score_class c);
/* Parses the class of a computed row by name. Returns false for other text. */
bool score_parse(const char *name, score_class *out);

/* Prints the head of the table of lines. */
void score_print_head(FILE *to);
/* Prints a line and counts it. */
void score_print_line(score *s, const score_line *l, FILE *to);
/* Prints a line of class SCORE_NOT_RUN and counts it. */
void score_print_missing(score *s, const score_missing *m, FILE *to);
/* Prints the table of counts of `what`, "rows" or "cells". */
void score_print(const score *s, const char *what, FILE *to);

#endif
