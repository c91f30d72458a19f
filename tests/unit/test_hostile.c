/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs crafted to exhaust memory: parser memory by counting allocations,
 * independent of sanitizers. */
#include "test.h"

#include "base/json_input.h"
#include "base/text.h"
#include "format/document/tree.h"
#include "runtime/device/tokenizer.h"
#include "runtime/training/safetensors.h"
#include "schedule/pipeline/schedule_internal.h"

#include <stddef.h>
#include <stdlib.h>

enum { MIB = 1 << 20 };

/* Returns `start`, `unit` repeated up to `size` bytes, `end`. */
static char *repeat(const char *start, const char *unit, const char *end,
                    size_t size, size_t *len)
{
    lhi_text text = {0};
    lhi_text_puts(&text, start);
    while (text.len < size)
        lhi_text_puts(&text, unit);
    lhi_text_puts(&text, end);
    char *out = NULL;
    CHECK(lhi_text_take(&text, &out, len, NULL) == LH_OK);
    return out;
}

/* --- YAML ----------------------------------------------------------------- */

static void short_values_are_refused_before_they_take_too_much(void)
{
    static const char *const units[] = {"1,", "[],", "{a},", "\"\",", "ab,"};
    lh_error err;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len;
        char *text = repeat("a: [", units[i], "1]\n", 2 * MIB, &len);
        lhi_doc *doc = NULL;
        lh_status status =
            lhi_doc_parse(text, len, "f", LHI_INPUT_PLAN, &doc, &err);
        CHECK_INT(status, LH_EINPUT);
        CHECK_HAS(err.text, "f:1: too many short values");
        free(text);
    }
}

/* Accepted input never uses more than its bound. */
static void what_is_accepted_is_within_the_bound(void)
{
    static const char *const units[] = {
        "1,",
        "12,",
        "[],",
        "1234567,",
        "{a: 1},",
        "{\"chunk\":0,\"F\":1},",
        "\"a text of its own\",",
    };
    lh_error err;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        for (size_t size = 1000; size <= 2 * MIB; size *= 8) {
            size_t len;
            char *text = repeat("a: [", units[i], "1]\n", size, &len);
            lhi_doc *doc = NULL;
            if (lhi_doc_parse(text, len, "f", LHI_INPUT_PLAN, &doc, &err) ==
                LH_OK) {
                size_t held = lhi_arena_used(doc->mem) + len;
                CHECK_MSG(held <= 8 * len + 16 * (size_t)MIB,
                          "'%s': %zu bytes take %zu", units[i], len, held);
            } else {
                CHECK_MSG(size > MIB / 8, "'%s' is refused at %zu bytes: %s",
                          units[i], len, err.text);
            }
            lhi_doc_free(doc);
            free(text);
        }
}

/* Equal texts are shared, others packed: each still equals the file's. */
static void texts_are_what_the_file_has(void)
{
    enum { N = 3000 };
    lhi_text text = {0};
    char want[64], filler[5000];
    memset(filler, 'x', sizeof filler - 1);
    filler[sizeof filler - 1] = '\0';
    lhi_text_puts(&text, "longhaul: \"\"\nitems:\n");
    for (uint32_t i = 0; i < N; i++)
        lhi_text_printf(&text, "- {k%u: %u, same: v%u, \"\": \"%.*s\"}\n",
                        i % 700, i, i % 3, (int)(i * 7 % 4999), filler);
    lhi_doc *doc = NULL;
    lh_error err;
    CHECK_OK(
        lhi_doc_parse(text.data, text.len, "f", LHI_INPUT_PLAN, &doc, &err),
        err);
    uint32_t i = 0;
    const lhi_node *items = doc ? lhi_node_find(doc->root, "items") : NULL;
    for (const lhi_node *n = items ? items->first : NULL; n; n = n->next, i++) {
        const lhi_node *one = n->first, *two = one->next, *three = two->next;
        snprintf(want, sizeof want, "k%u", i % 700);
        CHECK_STR(one->key, want);
        snprintf(want, sizeof want, "%u", i);
        CHECK_STR(one->text, want);
        CHECK_STR(two->key, "same");
        snprintf(want, sizeof want, "v%u", i % 3);
        CHECK_STR(two->text, want);
        CHECK_STR(three->key, "");
        CHECK_INT(strlen(three->text), i * 7 % 4999);
        CHECK_INT(strspn(three->text, "x"), i * 7 % 4999);
        CHECK(n->line == i + 3 && n->index == i && one->parent == n);
    }
    CHECK_INT(i, N);
    lhi_doc_free(doc);
    lhi_text_fini(&text);
}

static void long_values_and_directives_are_refused(void)
{
    lh_error err;
    lhi_doc *doc = NULL;
    size_t len;
    char *text =
        repeat("a: \"", "kkkkkkkkkkkkkkkk", "\"\n", LHI_TOKEN_BYTES + 16, &len);
    CHECK_INT(lhi_doc_parse(text, len, "f", LHI_INPUT_PLAN, &doc, &err),
              LH_EINPUT);
    CHECK_STR(err.text, "f:1: a value exceeds 32 MiB");
    free(text);
    text = repeat("", "%TAG !a! b\r", "---\na: 1\n", 20000, &len);
    CHECK_INT(lhi_doc_parse(text, len, "f", LHI_INPUT_PLAN, &doc, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, "too many directives");
    free(text);
}

/* --- JSON ----------------------------------------------------------------- */

static struct {
    size_t now, most;
} counted;

/* Header of a counted allocation. */
typedef union counted_header {
    size_t size;
    max_align_t align;
} counted_header;

/* malloc's block size: 8 bytes more, in steps of 16, at least 32. */
static size_t chunk_bytes(size_t size)
{
    size_t bytes = (size + 8 + 15) / 16 * 16;
    return bytes < 32 ? 32 : bytes;
}

static void *counting_malloc(size_t size)
{
    counted_header *header = malloc(sizeof *header + size);
    if (!header)
        return NULL;
    header->size = size;
    counted.now += chunk_bytes(size);
    if (counted.now > counted.most)
        counted.most = counted.now;
    return header + 1;
}

static void counting_free(void *pointer)
{
    if (!pointer)
        return;
    counted_header *header = (counted_header *)pointer - 1;
    counted.now -= chunk_bytes(header->size);
    free(header);
}

static void check_json(const char *start, const char *unit, const char *end,
                       size_t size)
{
    size_t len;
    json_error_t why;
    char *text = repeat(start, unit, end, size, &len);
    counted.now = counted.most = 0;
    json_set_alloc_funcs(counting_malloc, counting_free);
    json_t *json = lhi_json_load(text, len, 0, &why);
    json_decref(json);
    json_set_alloc_funcs(malloc, free);
    CHECK_INT(counted.now, 0);
    CHECK_MSG(counted.most + len <= 8 * len + 16 * (size_t)MIB,
              "'%s' of %zu bytes take %zu", unit, len, counted.most + len);
    CHECK_MSG(json || strstr(why.text, "too many short values"), "'%s': %s",
              unit, why.text);
    free(text);
}

static void jansson_stays_within_the_bound(void)
{
    static const char *const items[] = {
        "1,",
        "\"\",",
        "[],",
        "{},",
        "[1],",
        "{\"a\":1},",
        "\"ab cd\",",
        "[\"a\",\"b\"],",
        "1.5,",
        "null,",
        "\"a text of thirty-two bytes here\",",
    };
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        for (size_t size = 20000; size < 3 * MIB; size *= 5)
            check_json("{\"a\":[", items[i], "1]}", size);
}

static void maps_of_jansson_stay_within_the_bound(void)
{
    json_error_t why;
    for (uint32_t n = 1000; n <= 200000; n *= 14) {
        lhi_text text = {0};
        lhi_text_puts(&text, "{\"vocab\":{\"\":0");
        for (uint32_t i = 0; i < n; i++)
            lhi_text_printf(&text, ",\"%x\":%u", i, i);
        lhi_text_puts(&text, "}}");
        counted.now = counted.most = 0;
        json_set_alloc_funcs(counting_malloc, counting_free);
        json_t *json = lhi_json_load(text.data, text.len, 0, &why);
        json_decref(json);
        json_set_alloc_funcs(malloc, free);
        CHECK_MSG(counted.most + text.len <= 8 * text.len + 16 * (size_t)MIB,
                  "%u keys take %zu", n, counted.most);
        lhi_text_fini(&text);
    }
}

/* A tokenizer as large as current models': 128 thousand tokens and 280 thousand
 * merges, in 9 MB. */
static void large_tokenizers_are_read(void)
{
    lhi_text text = {0};
    json_error_t why;
    lhi_text_puts(&text, "{\"model\":{\"vocab\":{\"!\":0");
    for (uint32_t i = 1; i < 128000; i++)
        lhi_text_printf(&text, ",\"\xc4\xa0tok%x\":%u", i * 37, i);
    lhi_text_puts(&text, "},\"merges\":[\"a b\"");
    for (uint32_t i = 1; i < 280000; i++)
        lhi_text_printf(&text, ",\"\xc4\xa0tok%x %x\"", i * 37, i);
    lhi_text_puts(&text, "]}}");
    json_t *json = lhi_json_load(text.data, text.len, 0, &why);
    CHECK_MSG(json != NULL, "%zu bytes: %s", text.len, why.text);
    json_decref(json);
    lhi_text_fini(&text);
}

/* Words in the text, which need memory while they are merged. */
static void words_without_end_are_refused(void)
{
    enum { LONG = (1 << 18) + 16 };
    lhi_tokenizer *t = NULL;
    lh_error err;
    size_t len, n;
    uint32_t *tokens = NULL;
    const char *file =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},"
        "\"merges\":[\"a a\"]},\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false}}";
    CHECK_OK(lhi_tokenizer_parse(file, strlen(file), "t", &t, &err), err);
    char *text = repeat("", "aaaa", "", LONG, &len);
    CHECK_INT(lhi_tokenizer_encode(t, text, len, &tokens, &n, &err), LH_EINPUT);
    CHECK_HAS(err.text, "is longer than 256 KiB");
    CHECK_OK(lhi_tokenizer_encode(t, text, 1 << 18, &tokens, &n, &err), err);
    CHECK_INT(n, 1 << 17);
    lhi_tokens_free(tokens);
    lhi_tokenizer_free(t);
    free(text);
}

static void headers_of_tensors_are_refused_within_the_bound(void)
{
    lh_error err;
    lhi_safetensors *file = NULL;
    size_t len;
    char *text = repeat("{\"a\":[", "1,", "1]}", 3 * MIB, &len);
    CHECK_INT(lhi_st_parse(text, len, 1 << 30, "f", &file, &err), LH_EINPUT);
    CHECK_HAS(err.text, "too many short values");
    free(text);
}

/* --- sizes ---------------------------------------------------------------- */

static void every_kind_has_its_size_in_the_documents(void)
{
    char *page = NULL, row[128];
    lh_error err;
    CHECK_OK(lhi_file_read(TEST_FORMATS "/README.md", MIB, &page, NULL, &err),
             err);
    for (int i = 0; i < LHI_N_INPUTS; i++) {
        lhi_input_kind kind = (lhi_input_kind)i;
        snprintf(row, sizeof row, "| %s | %zu MiB |", lhi_input_describe(kind),
                 lhi_input_max_bytes(kind) / MIB);
        CHECK_HAS(page, row);
        CHECK_OK(
            lhi_input_check_size(lhi_input_max_bytes(kind), "f", kind, &err),
            err);
        CHECK_INT(lhi_input_check_size(lhi_input_max_bytes(kind) + 1, "f", kind,
                                       &err),
                  LH_EINPUT);
        CHECK_HAS(err.text, lhi_input_describe(kind));
    }
    lh_text_free(page);
}

static void schedules_hold_no_room_for_idle_steps(void)
{
    lh_error err;
    lh_schedule *schedule = NULL;
    size_t len;
    char *text = repeat("0F0", ",", "\n", 2 * MIB, &len);
    CHECK_OK(lh_schedule_parse(text, len, "f", &schedule, &err), err);
    if (schedule)
        CHECK_MSG(lhi_arena_used(schedule->mem) < 1000, "it takes %zu bytes",
                  lhi_arena_used(schedule->mem));
    lh_schedule_free(schedule);
    free(text);
}

int main(void)
{
    RUN(short_values_are_refused_before_they_take_too_much);
    RUN(what_is_accepted_is_within_the_bound);
    RUN(texts_are_what_the_file_has);
    RUN(long_values_and_directives_are_refused);
    RUN(jansson_stays_within_the_bound);
    RUN(maps_of_jansson_stay_within_the_bound);
    RUN(large_tokenizers_are_read);
    RUN(words_without_end_are_refused);
    RUN(headers_of_tensors_are_refused_within_the_bound);
    RUN(every_kind_has_its_size_in_the_documents);
    RUN(schedules_hold_no_room_for_idle_steps);
    return test_summary();
}
