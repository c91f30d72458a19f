/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/rank_map.h"

#include "base/sort.h"
#include "format/job/parse.h"

#include <string.h>

/* --- patterns ------------------------------------------------------------- */

#define MAX_NUMBER INT64_C(1000000000000)

static const struct {
    const char *text;
    size_t offset;
} places[] = {{"{chunk}", offsetof(lhi_name_numbers, chunk)},
              {"{microbatch}", offsetof(lhi_name_numbers, microbatch)},
              {"{step}", offsetof(lhi_name_numbers, step)}};
/* Placeholder count. */
enum { N_PLACES = sizeof places / sizeof *places };

/* Returns the placeholder at the start of `pattern`; N_PLACES if there is none.
 */
static uint32_t find_placeholder(const char *pattern)
{
    uint32_t k = 0;
    while (k < N_PLACES &&
           strncmp(pattern, places[k].text, strlen(places[k].text)) != 0)
        k++;
    return k;
}

/* Parses a decimal number; returns the position after it, or NULL if there is
 * none or it exceeds MAX_NUMBER. */
static const char *parse_number(const char *name, int64_t *out)
{
    const char *at = name;
    for (*out = 0; *at >= '0' && *at <= '9'; at++) {
        *out = 10 * *out + (*at - '0');
        if (*out > MAX_NUMBER)
            return NULL;
    }
    return at == name ? NULL : at;
}

bool lhi_name_matches(const char *pattern, const char *name,
                      lhi_name_numbers *numbers)
{
    const char *star = NULL, *from = NULL; /* after the last `*` */
    *numbers = (lhi_name_numbers){-1, -1, -1};
    for (;;) {
        uint32_t place = find_placeholder(pattern);
        const char *next = NULL;
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
            continue;
        }
        if (place < N_PLACES) {
            int64_t number;
            if ((next = parse_number(name, &number))) {
                memcpy((char *)numbers + places[place].offset, &number,
                       sizeof number);
                pattern += strlen(places[place].text);
            }
        } else if (*pattern == *name) {
            if (*name == '\0')
                return true;
            next = name + 1;
            pattern++;
        }
        if (!next) { /* backtrack: `*` matches one character more */
            if (!star || *from == '\0')
                return false;
            pattern = star;
            next = ++from;
        }
        name = next;
    }
}

/* --- file ----------------------------------------------------------------- */

static const char *const kinds[] = {
#define LHI_RANGE_NAME(name, text, operation) text,
    LHI_OP_LIST(LHI_RANGE_NAME)
#undef LHI_RANGE_NAME
        "step",
    "nothing", NULL};

/* Checks whether a name pattern contains the placeholder `place` exactly
 * once. */
static bool has_placeholder(const char *pattern, const char *place)
{
    const char *at = strstr(pattern, place);
    return at && !strstr(at + 1, place);
}

/* Checks that a name pattern has the placeholders its kind requires, and no
 * others. LH_EINPUT otherwise. */
static lh_status check_name(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    lhi_map_name *n = it;
    const lhi_node *node = lhi_node_find(map, "name");
    bool of_microbatch = n->kind <= LHI_OP_BACKWARD_RECV;
    n->line = map->line;
    for (const char *at = n->pattern; *at; at++)
        if (*at == '{' && find_placeholder(at) == N_PLACES)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "has a brace that does not start {chunk}, "
                                "{microbatch} or {step}");
    for (uint32_t k = 0; k < N_PLACES; k++)
        if (strstr(n->pattern, places[k].text) &&
            !has_placeholder(n->pattern, places[k].text))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "contains %s twice", places[k].text);
    if (of_microbatch && !has_placeholder(n->pattern, "{microbatch}"))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires {microbatch} in place of the microbatch "
                            "number, as every pass and message");
    if ((n->kind == LHI_RANGE_STEP) != has_placeholder(n->pattern, "{step}"))
        return lhi_doc_fail(
            r->doc, node, err, LH_EINPUT,
            n->kind == LHI_RANGE_STEP
                ? "requires {step} in place of the step number"
                : "contains {step}, which is allowed only for steps");
    if (!of_microbatch && n->kind != LHI_RANGE_IGNORED &&
        (strstr(n->pattern, "{chunk}") || strstr(n->pattern, "{microbatch}")))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "contains {chunk} or {microbatch}, which are "
                            "allowed only for passes and messages; * matches "
                            "any text");
    return LH_OK;
}

static const lhi_schema_field name_rows[] = {
    {"name", LHI_STRING(lhi_map_name, pattern), .least = 1},
    {"is", LHI_ENUM(lhi_map_name, kind), .names = kinds},
};
static const lhi_schema name_table = {LHI_ROWS("name", lhi_map_name, name_rows),
                                      .check = check_name};

/* Stores the line number of a rank's entry in the rank map `map`, for later
 * error messages; a callback of the schema reader, which never fails. */
static lh_status check_rank(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    (void)r;
    (void)err;
    ((lhi_map_rank *)it)->line = map->line;
    return LH_OK;
}

static const lhi_schema_field rank_rows[] = {
    {"rank", LHI_INTEGER(lhi_map_rank, rank), .most = UINT32_MAX - 1},
    {"stage", LHI_INTEGER(lhi_map_rank, stage),
     .most = LHI_MAX_STAGES_OR_REPLICAS - 1},
    {"replica", LHI_INTEGER(lhi_map_rank, replica),
     .most = LHI_MAX_STAGES_OR_REPLICAS - 1},
    {"file", LHI_STRING(lhi_map_rank, file), .least = 1, .when = LHI_OPTIONAL},
};
static const lhi_schema rank_table = {LHI_ROWS("rank", lhi_map_rank, rank_rows),
                                      .check = check_rank};

/* Compares pointers to rank entries by rank number, then by line, for
 * lhi_sort(). */
static int compare_by_rank(const void *a, const void *b)
{
    const lhi_map_rank *x = *(const lhi_map_rank *const *)a;
    const lhi_map_rank *y = *(const lhi_map_rank *const *)b;
    return x->rank != y->rank ? (x->rank > y->rank ? 1 : -1)
                              : (x->line > y->line) - (x->line < y->line);
}

/* Compares pointers to rank entries by file name, then by line, for
 * lhi_sort(). */
static int compare_by_file(const void *a, const void *b)
{
    const lhi_map_rank *x = *(const lhi_map_rank *const *)a;
    const lhi_map_rank *y = *(const lhi_map_rank *const *)b;
    int order = strcmp(x->file ? x->file : "", y->file ? y->file : "");
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Fails with LH_EINPUT if the rank map lists a rank or a trace file twice;
 * `list`: the node at which the error is reported. */
static lh_status check_ranks(const lhi_read_context *r, const lhi_node *list,
                             const lh_rank_map *m, lh_error *err)
{
    const lhi_map_rank **by = LHI_NEW(r->mem, const lhi_map_rank *, m->n_ranks);
    if (!by)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < m->n_ranks; i++)
        by[i] = &m->ranks[i];
    lhi_sort(by, m->n_ranks, sizeof(*by), compare_by_rank);
    for (uint32_t i = 1; i < m->n_ranks; i++)
        if (by[i]->rank == by[i - 1]->rank)
            return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                                "lists rank %u twice, in lines %u and %u",
                                by[i]->rank, by[i - 1]->line, by[i]->line);
    lhi_sort(by, m->n_ranks, sizeof(*by), compare_by_file);
    for (uint32_t i = 1; i < m->n_ranks; i++)
        if (by[i]->file && by[i - 1]->file &&
            strcmp(by[i]->file, by[i - 1]->file) == 0)
            return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                                "lists a file twice, in lines %u and %u",
                                by[i - 1]->line, by[i]->line);
    return LH_OK;
}

/* Checks that a rank map has ranks or names, and that its ranks are unique. */
static lh_status check_map(const lhi_read_context *r, const lhi_node *root,
                           void *it, lh_error *err)
{
    const lh_rank_map *m = it;
    if (m->n_ranks == 0 && m->n_names == 0)
        return lhi_doc_fail(r->doc, root, err, LH_EINPUT,
                            "is empty; set 'ranks' or 'names'");
    return m->n_ranks ? check_ranks(r, lhi_node_find(root, "ranks"), m, err)
                      : LH_OK;
}

static const lhi_schema_field map_rows[] = {
    {"longhaul", LHI_DERIVED(lh_rank_map), .description = "ranks/1"},
    {"ranks", LHI_LIST(lh_rank_map, ranks, n_ranks), .table = &rank_table,
     .min_items = 1, .max_items = LH_MAX_MAP_RANKS, .when = LHI_OPTIONAL},
    {"names", LHI_LIST(lh_rank_map, names, n_names), .table = &name_table,
     .min_items = 1, .max_items = LH_MAX_MAP_NAMES, .when = LHI_OPTIONAL},
};
const lhi_schema lhi_rank_map_table = {LHI_ROWS("ranks", lh_rank_map, map_rows),
                                       .check = check_map};

/* Reads a parsed rank map document (format ranks/1) into `value`, an
 * lh_rank_map; a callback for lhi_schema. */
static lh_status fill_map(const lhi_doc *doc, lhi_arena *mem, void *value,
                          lh_error *err)
{
    lh_rank_map *map = value;
    lhi_read_context r = {.doc = doc, .mem = mem};
    LHI_TRY(lhi_doc_check_format(doc, "ranks", 1, err));
    LHI_TRY(lhi_schema_read(&r, doc->root, &lhi_rank_map_table, map, err));
    map->file = lhi_arena_strdup(mem, doc->file);
    return map->file ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_rank_map_parse(const char *text, size_t len, const char *name,
                             lh_rank_map **out, lh_error *err)
{
    void *map;
    LHI_TRY(lhi_value_parse(text, len, name, LHI_INPUT_RANKS,
                            sizeof(lh_rank_map), fill_map, &map, err));
    *out = map;
    return LH_OK;
}

lh_status lh_rank_map_read(const char *path, lh_rank_map **out, lh_error *err)
{
    void *map;
    LHI_TRY(lhi_value_read(path, LHI_INPUT_RANKS, sizeof(lh_rank_map), fill_map,
                           &map, err));
    *out = map;
    return LH_OK;
}

/* Frees a rank map; ignores NULL. */
void lh_rank_map_free(lh_rank_map *map)
{
    lhi_value_free(map);
}

lh_status lhi_rank_map_format(const lh_rank_map *map, char **text, size_t *len,
                              lh_error *err)
{
    return lhi_json_format(lhi_schema_write(&lhi_rank_map_table, map, NULL),
                           text, len, err);
}
