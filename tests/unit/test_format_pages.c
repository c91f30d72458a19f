/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the format pages with the code's field tables: each key of a table
 * is in its page as `key`, and each key in the page's examples and first table
 * columns exists. */
#include "format/job/parse.h"
#include "planner/file/plan_file.h"
#include "report/diagnosis/rank_map.h"
#include "report/trace/trace_keys.h"
#include "schedule/certificate/certificate.h"
#include "schedule/pipeline/file/pipe_file.h"

#include "test.h"

#include "base/text.h"

#include <stdlib.h>

/* A format page and its tables. */
typedef struct page {
    const char *name;
    const lhi_schema *tables[8]; /* tables of the file's root structs */
    const char *besides[16];     /* keys of other pages, in examples */
    bool more;                   /* the page has keys not yet in a table */
} page;

static const page pages[] = {
    {"pipeline.md", {&lhi_pipeline_schema}, {NULL}, false},
    {"certificate.md", {&lhi_certificate_table}, {NULL}, false},
    {"trace.md",
     {&lhi_trace_table, &lhi_trace_slice_table, &lhi_trace_run_table,
      &lhi_trace_message_table, &lhi_trace_collective_table},
     {NULL},
     false},
    {"plan.md", {&lhi_plan_table}, {NULL}, false},
    {"profile.md", {&lhi_profile_schema}, {NULL}, false},
    {"events.md", {&lhi_events_schema}, {NULL}, false},
    {"ranks.md", {&lhi_rank_map_table}, {NULL}, false},
    {"job.md",
     {&lhi_model_schema, &lhi_framework_schema, &lhi_job_link_schema},
     {NULL},
     true},
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '+';
}

/* Calls `visit` for each `word` in text[0..len-1], or `word: value`; with
 * another quote character, only for "word":. */
static void each_word(const char *text, size_t len, char quote,
                      void (*visit)(const char *word, size_t len, void *to),
                      void *to)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] != quote)
            continue;
        size_t from = ++i;
        while (i < len && is_word(text[i]))
            i++;
        size_t end = i;
        while (i < len && text[i] != quote)
            i++;
        bool key = quote == '`' ? end == i || text[end] == ':'
                                : end == i && i + 1 < len && text[i + 1] == ':';
        if (end > from && key)
            visit(text + from, end - from, to);
    }
}

/* A word to find in a table. */
typedef struct search {
    const char *key;
    bool found;
} search;

static void compare_words(const char *word, size_t len, void *to)
{
    search *s = to;
    s->found |= strlen(s->key) == len && memcmp(s->key, word, len) == 0;
}

static void compare_keys(const lhi_schema *table, const lhi_schema_field *row,
                         void *to)
{
    search *s = to;
    (void)table;
    s->found |= strcmp(s->key, row->key) == 0;
}

/* State while reading a page. */
typedef struct reading {
    const page *page;
    const char *text;
    bool besides; /* in an example */
    const lhi_schema_field *seen[512];
    uint32_t n_keys, n_words;
} reading;

static void page_has_key(const lhi_schema *table, const lhi_schema_field *row,
                         void *to)
{
    reading *r = to;
    search s = {row->key, false};
    for (uint32_t i = 0; i < r->n_keys; i++)
        if (r->seen[i] == row)
            return;
    if (r->n_keys < sizeof r->seen / sizeof *r->seen)
        r->seen[r->n_keys++] = row;
    CHECK_MSG(row->owner == table->size, "`%s` is not of the struct of %s",
              row->key, table->name);
    each_word(r->text, strlen(r->text), '`', compare_words, &s);
    CHECK_MSG(s.found, "docs/formats/%s: `%s` of a %s is not there",
              r->page->name, row->key, table->name);
}

static void table_has_word(const char *word, size_t len, void *to)
{
    reading *r = to;
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)len, word);
    search s = {key, false};
    for (int i = 0; r->page->tables[i]; i++)
        lhi_schema_walk(r->page->tables[i], compare_keys, &s);
    for (int i = 0; r->besides && r->page->besides[i]; i++)
        s.found |= strcmp(key, r->page->besides[i]) == 0;
    CHECK_MSG(s.found, "docs/formats/%s: `%s` is no key of that file",
              r->page->name, key);
    r->n_words++;
}

/* Checks first table columns, and keys in JSON examples. */
static void words_are_keys(reading *r)
{
    bool json = false;
    for (const char *line = r->text, *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        const char *column = line[0] == '|' ? strchr(line + 1, '|') : NULL;
        r->besides = json;
        if (strncmp(line, "```", 3) == 0)
            json = strncmp(line, "```json", 7) == 0;
        else if (json)
            each_word(line, (size_t)(end - line), '"', table_has_word, r);
        else if (column && column < end)
            each_word(line, (size_t)(column - line), '`', table_has_word, r);
    }
}

static void pages_and_tables_name_the_same_keys(void)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char path[1024];
        lh_error err = {0};
        char *text = NULL;
        snprintf(path, sizeof path, "%s/%s", TEST_FORMATS, pages[i].name);
        CHECK_OK(lhi_file_read(path, 1 << 20, &text, NULL, &err), err);
        if (!text)
            continue;
        reading r = {.page = &pages[i], .text = text};
        for (int t = 0; pages[i].tables[t]; t++)
            lhi_schema_walk(pages[i].tables[t], page_has_key, &r);
        if (!pages[i].more)
            words_are_keys(&r);
        CHECK_MSG(r.n_keys > 8 && (pages[i].more || r.n_words > 8),
                  "%s: %u keys, %u words", pages[i].name, r.n_keys, r.n_words);
        lh_text_free(text);
    }
}

int main(void)
{
    RUN(pages_and_tables_name_the_same_keys);
    return test_summary();
}
