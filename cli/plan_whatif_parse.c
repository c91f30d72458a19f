/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
/* Parses `--what-if`. */
#include "links.h"
#include "plan_whatif.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_ITEMS = 32,         /* link quantities */
    MOST_VALUES = 64,        /* per quantity */
    TEXT = MOST_ITEMS * 200, /* per question */
};

/* A value, absolute or relative. */
typedef struct value {
    double number;
    bool relative;
    char text[32]; /* as typed */
} value;

/* A quantity for one link, or all links, and its values. */
typedef struct item {
    char name[160]; /* as typed, without '=' */
    uint32_t from, to;
    bool both; /* both directions */
    lh_link_quantity quantity;
    value *values;
    uint32_t n_values;
} item;

/* Parser state. */
typedef struct parser {
    cli *c;
    const lh_job *job;
    item items[MOST_ITEMS];
    /* Lists separated by ';' have separate cases: list g is items begin[g] to
     * begin[g + 1]. */
    uint32_t n, n_lists, begin[MOST_ITEMS + 1];
} parser;

/* --- names -------------------------------------------------------------- */

/* Finds a link quantity by its name's first `len` bytes, into *out. Returns
 * false if there is none. */
static bool find_quantity(const char *name, size_t len, lh_link_quantity *out)
{
    for (int q = LH_LINK_LATENCY; q <= LH_LINK_OVERSUBSCRIPTION; q++) {
        const char *known = lh_link_quantity_name((lh_link_quantity)q);
        if (strlen(known) == len && strncmp(known, name, len) == 0) {
            *out = (lh_link_quantity)q;
            return true;
        }
    }
    return false;
}

/* Finds a datacenter in the job by its name's first `len` bytes; *out is its
 * number. Returns false if there is none (callback). */
static bool find_datacenter(const void *context, const char *name, size_t len,
                            uint32_t *out)
{
    const lh_job *job = context;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (strlen(job->datacenters[i].name) == len &&
            strncmp(job->datacenters[i].name, name, len) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* Finds the first prefix of `text` that is a link and a dot before a quantity,
 * `west-east.latency`; names may contain dots and '='. Sets the link and
 * quantity in *out; *n: number of links that match. Returns the prefix's
 * length, 0: no link. */
static size_t find_link(const lh_job *job, const char *text, item *out,
                        uint32_t *n)
{
    for (size_t len = 1; text[len - 1]; len++) {
        cli_link link;
        if (text[len - 1] != '.' ||
            !find_quantity(text + len, strcspn(text + len, "="),
                           &out->quantity) ||
            !(*n = cli_find_link(text, len - 1, find_datacenter, job, &link)))
            continue;
        out->from = link.from;
        out->to = link.to;
        out->both = !link.one_way;
        return len;
    }
    return 0;
}

/* Parses `name=` and advances *text past it. */
static lh_status parse_name(parser *p, const char **text, item *out)
{
    *out = (item){.from = LH_ALL_LINKS, .to = LH_ALL_LINKS};
    uint32_t n_links = 0;
    size_t link = find_link(p->job, *text, out, &n_links);
    if (n_links > 1)
        return cli_usage(p->c,
                         "--what-if: '%.*s' is ambiguous, as datacenter names "
                         "contain dashes; use '>', once per direction",
                         (int)(link < 120 ? link - 1 : 120), *text);
    size_t len = link + strcspn(*text + link, "=");
    if (len >= sizeof out->name ||
        !find_quantity(*text + link, len - link, &out->quantity))
        return cli_usage(
            p->c,
            "--what-if: '%.*s' is not latency, bandwidth, loss or "
            "oversubscription, alone or of a link of the job, such as "
            "%.60s-%.60s.latency",
            (int)(len < 60 ? len : 60), *text, p->job->datacenters[0].name,
            p->job->n_datacenters > 1 ? p->job->datacenters[1].name : "b");
    memcpy(out->name, *text, len);
    for (const item *i = p->items + p->begin[p->n_lists - 1]; i < out; i++)
        if (i->quantity == out->quantity && i->from == out->from &&
            i->to == out->to && i->both == out->both)
            return cli_usage(p->c,
                             "--what-if: %s is given twice; list its values "
                             "(%s=20,40), or separate cases by ';'",
                             out->name, out->name);
    *text += len + ((*text)[len] == '=');
    return LH_OK;
}

/* --- values ------------------------------------------------------------- */

/* Appends a value to link quantity `to` of --what-if: `number` itself or, if
 * `relative`, the factor `number` on the job's value. */
static lh_status add_value(parser *p, item *to, double number, bool relative)
{
    if (to->n_values == MOST_VALUES)
        return cli_usage(p->c, "--what-if: more than %d values of %s",
                         MOST_VALUES, to->name);
    value *v = &to->values[to->n_values++];
    v->number = number;
    v->relative = relative;
    snprintf(v->text, sizeof v->text, "%s%.12g", relative ? "x" : "", number);
    return LH_OK;
}

/* Fails with a usage error: `text` is an invalid value of item `of` (a link
 * quantity) of --what-if. */
static lh_status fail_bad_value(parser *p, const item *of, const char *text)
{
    return cli_usage(p->c,
                     "--what-if: %s: '%.*s' is not a value such as 40, x2 or "
                     "/2, nor a range such as 10:80:10",
                     of->name, (int)strcspn(text, ","), text);
}

/* Parses a --what-if value, `40`, `x2`, `/2` or `first:last:step`, and appends
 * its numbers to *to, a quantity with values to vary. *text is advanced to the
 * rest. */
static lh_status parse_value(parser *p, const char **text, item *to)
{
    const char *whole = *text;
    bool times = **text == 'x', by = **text == '/';
    cli_range range;
    *text += times || by;
    if (!cli_parse_range(text, &range))
        return fail_bad_value(p, to, whole);
    const cli_number first = range.number[0];
    bool is_list = range.n_numbers > 1;
    for (uint32_t i = 0; i < range.n_numbers; i++)
        if (range.number[i].timed)
            return fail_bad_value(p, to, whole);
    if ((is_list && (times || by)) || (by && !(first.value > 0)))
        return fail_bad_value(p, to, whole);
    if (times || by)
        return add_value(p, to, by ? 1 / first.value : first.value, true);
    double n = cli_range_count(&range);
    if (n < 1)
        return cli_reject_empty_range(p->c, "what-if", whole);
    for (double i = 0; i < n; i++)
        CLI_TRY(add_value(p, to, cli_range_at(&range, i), false));
    return LH_OK;
}

/* Parses one --what-if list: quantities with their values, separated by
 * commas. */
static lh_status parse_list(parser *p, const char *text)
{
    p->begin[p->n_lists++] = p->n;
    for (;; text++) {
        /* Another value, or the next quantity. */
        const char *equals = strchr(text, '='), *comma = strchr(text, ',');
        if (p->n == p->begin[p->n_lists - 1] ||
            (equals && (!comma || equals < comma))) {
            if (p->n == MOST_ITEMS)
                return cli_usage(p->c, "--what-if: more than %d quantities",
                                 MOST_ITEMS);
            CLI_TRY(parse_name(p, &text, &p->items[p->n]));
            p->items[p->n].values = calloc(MOST_VALUES, sizeof(value));
            if (!p->items[p->n++].values)
                return cli_no_memory(p->c);
        }
        CLI_TRY(parse_value(p, &text, &p->items[p->n - 1]));
        if (!*text)
            break;
    }
    p->begin[p->n_lists] = p->n;
    return LH_OK;
}

/* Parses the --what-if lists, separated by semicolons. */
static lh_status parse_lists(parser *p, const char *text)
{
    char *copy = strdup(text), *list = copy;
    lh_status status = copy ? LH_OK : cli_no_memory(p->c);
    while (list && status == LH_OK) {
        char *end = strchr(list, ';');
        if (end)
            *end++ = 0;
        status =
            p->n_lists < MOST_ITEMS
                ? parse_list(p, list)
                : cli_usage(p->c, "--what-if: more than %d lists", MOST_ITEMS);
        list = end;
    }
    free(copy);
    return status;
}

/* --- questions ---------------------------------------------------------- */

/* Writes the changes that set link quantity `i` to value `v`, one for each
 * direction that it names, to out[0] and out[1]; returns their number. */
static uint32_t add_changes(const item *i, const value *v, lh_link_change *out)
{
    out[0] =
        (lh_link_change){i->from, i->to, i->quantity, v->relative, v->number};
    out[1] = out[0];
    out[1].from = i->to;
    out[1].to = i->from;
    return i->both ? 2 : 1;
}

/* Counts the values' combinations in --what-if list number `list`; stops above
 * CLI_MOST_QUESTIONS. */
static uint64_t count_cases(const parser *p, uint32_t list)
{
    uint64_t n = 1;
    for (uint32_t i = p->begin[list];
         i < p->begin[list + 1] && n <= CLI_MOST_QUESTIONS; i++)
        n *= p->items[i].n_values;
    return n;
}

/* Fills in question number q of --what-if list number `list`: its combination
 * of values, of which the last quantity's vary fastest. `changes`, `text`: its
 * memory. */
static void fill_question(const parser *p, uint32_t list, uint64_t q,
                          lh_link_change *changes, char *text,
                          lh_plan_whatif_question *out)
{
    size_t len = 0;
    uint32_t of[MOST_ITEMS];
    uint32_t begin = p->begin[list], end = p->begin[list + 1];
    for (uint32_t i = end; i-- > begin; q /= p->items[i].n_values)
        of[i] = (uint32_t)(q % p->items[i].n_values);
    *out = (lh_plan_whatif_question){.text = text, .changes = changes};
    for (uint32_t i = begin; i < end; i++) {
        const item *it = &p->items[i];
        const value *v = &it->values[of[i]];
        if (len < TEXT)
            len += (size_t)snprintf(text + len, TEXT - len, "%s%s=%s",
                                    i > begin ? "," : "", it->name, v->text);
        out->n_changes += add_changes(it, v, changes + out->n_changes);
    }
}

/* Builds one what-if question per combination of values of every list, into
 * *out; the caller frees its arrays. */
static lh_status build_questions(const parser *p, cli_questions *out)
{
    uint64_t n = 0;
    for (uint32_t list = 0; list < p->n_lists; list++)
        n += count_cases(p, list);
    if (n > CLI_MOST_QUESTIONS)
        return cli_usage(p->c, "--what-if: more than %d combinations of values",
                         CLI_MOST_QUESTIONS);
    out->all = calloc(n, sizeof *out->all);
    out->changes = calloc(n * 2 * MOST_ITEMS, sizeof *out->changes);
    out->texts = calloc(n, TEXT);
    if (!out->all || !out->changes || !out->texts)
        return cli_no_memory(p->c);
    for (uint32_t list = 0; list < p->n_lists; list++)
        for (uint64_t q = 0; q < count_cases(p, list); q++, out->n++)
            fill_question(
                p, list, q, out->changes + (size_t)out->n * 2 * MOST_ITEMS,
                out->texts + (size_t)out->n * TEXT, &out->all[out->n]);
    return LH_OK;
}

lh_status cli_questions_parse(cli *c, const char *text, const lh_job *job,
                              cli_questions *out)
{
    *out = (cli_questions){0};
    if (!text)
        return LH_OK;
    if (job->n_datacenters < 2)
        return cli_usage(
            c,
            "--what-if: %s has one datacenter and no links between "
            "datacenters",
            job->name);
    parser *p = calloc(1, sizeof *p);
    if (!p)
        return cli_no_memory(c);
    p->c = c;
    p->job = job;
    lh_status status = parse_lists(p, text);
    if (status == LH_OK)
        status = build_questions(p, out);
    for (uint32_t i = 0; i < p->n; i++)
        free(p->items[i].values);
    free(p);
    return status;
}

void cli_questions_fini(cli_questions *questions)
{
    free(questions->all);
    free(questions->changes);
    free(questions->texts);
    *questions = (cli_questions){0};
}
