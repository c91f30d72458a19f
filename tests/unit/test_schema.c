/* SPDX-License-Identifier: Apache-2.0 */
/* Field tables: written values read back, each error names its key, and any
 * allocation may fail. */
#include "format/document/schema.h"

#include "fail_alloc.h"
#include "test.h"

#include <stdlib.h>

/* Test enum with names in the file. */
typedef enum colour { RED = 1, GREEN } colour;

/* Test struct, an element of an array. */
typedef struct wheel {
    uint32_t spokes;
    const char *maker;
} wheel;

/* Test struct, an optional object. */
typedef struct bell {
    double tone;
} bell;

/* Test struct, a required object. */
typedef struct frame {
    int64_t height, width;
} frame;

/* Test struct at the top level. */
typedef struct cycle {
    const char *name, *note;
    colour paint;
    bool electric, geared;
    double price, range, bytes;
    int64_t nap_ns;
    int64_t built_ns, sold_ns, ride_ns;
    double mean_ns;
    double bytes_per_s;
    int64_t serial;
    uint64_t seed;
    uint32_t doors; /* one letter in the file */
    frame frame;
    const bell *bell;
    uint32_t n_wheels, n_gears;
    const wheel *wheels;
    const uint32_t *gears;
    uint32_t n_trips;
    const int64_t *trips_ns;
    int64_t wax;
} cycle;

static bool parse_letter(const char *text, void *member)
{
    uint32_t value = (uint32_t)(text[0] - 'a');
    memcpy(member, &value, sizeof value);
    return text[0] >= 'a' && text[0] <= 'z' && !text[1];
}

static const char *print_letter(const void *member, char *text)
{
    uint32_t value;
    memcpy(&value, member, sizeof value);
    text[0] = (char)('a' + value);
    text[1] = '\0';
    return text;
}

static lh_status read_wax(const lhi_read_context *r, const lhi_node *node,
                          void *owner, lh_error *err)
{
    cycle *c = owner;
    LHI_TRY(lhi_node_get_int(r->doc, node, 0, 9, &c->wax, err));
    c->wax += *(const int64_t *)r->context;
    return LH_OK;
}

static json_t *write_wax(const void *owner, const void *context)
{
    return json_integer(((const cycle *)owner)->wax -
                        *(const int64_t *)context);
}

static json_t *write_area(const void *owner, const void *context)
{
    const cycle *c = owner;
    (void)context;
    return json_integer(c->frame.height * c->frame.width);
}

static void start_cycle(const lhi_read_context *r, void *it)
{
    (void)r;
    ((cycle *)it)->seed = 77;
}

static lh_status check_cycle(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    const cycle *c = it;
    const lhi_node *node = lhi_node_find(map, "area");
    int64_t said;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_node_get_int(r->doc, node, 0, INT64_MAX, &said, err));
    if (said == c->frame.height * c->frame.width)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "is not height x width");
}

static const char *const colours[] = {"red", "green", NULL};
static const char *const drives[] = {"chain", "gears", NULL};

static const lhi_schema_field wheel_rows[] = {
    {"spokes", LHI_INTEGER(wheel, spokes), .least = 3, .most = 99},
    {"maker", LHI_STRING(wheel, maker), .least = 1},
};
static const lhi_schema wheel_table = {LHI_ROWS("wheel", wheel, wheel_rows)};
static const lhi_schema_field bell_rows[] = {
    {"tone", LHI_REAL(bell, tone), .low = 0.5, .high = 20},
};
static const lhi_schema bell_table = {LHI_ROWS("bell", bell, bell_rows)};
static const lhi_schema_field frame_rows[] = {
    {"height", LHI_TIME(frame, height)},
    {"width", LHI_TIME(frame, width), .when = LHI_DEFAULTED},
};
static const lhi_schema frame_table = {LHI_ROWS("frame", frame, frame_rows)};
static const lhi_schema_field sale_rows[] = {
    {"price", LHI_REAL(cycle, price), .low = -1, .high = 1e6},
    {"sold_s", LHI_SECONDS(cycle, sold_ns), .high = 9e9, .when = LHI_NULLABLE,
     .absent = -1},
};
static const lhi_schema sale_table = {LHI_ROWS("sale", cycle, sale_rows)};

static const lhi_schema_field cycle_rows[] = {
    {"name", LHI_STRING(cycle, name), .quoted = true},
    {"note", LHI_STRING(cycle, note), .when = LHI_OPTIONAL},
    {"paint", LHI_ENUM(cycle, paint), .least = RED, .names = colours},
    {"electric", LHI_BOOL(cycle, electric)},
    {"drive", LHI_ENUM(cycle, geared), .names = drives, .when = LHI_OPTIONAL},
    {"sale", LHI_NESTED_MAP(cycle), .table = &sale_table},
    {"range", LHI_REAL(cycle, range), .high = 1e3, .when = LHI_OPTIONAL},
    {"built_s", LHI_SECONDS(cycle, built_ns), .high = 9e8},
    {"mean_s", LHI_SECONDS(cycle, mean_ns), .high = 9e8},
    {"gbps", LHI_GBPS(cycle, bytes_per_s), .high = 1e9, .when = LHI_NULLABLE},
    {"kib", LHI_NUMBER(cycle, bytes), .high = 1e9, .scale = 1024,
     .when = LHI_OPTIONAL},
    {"nap_us", LHI_SHORT_TIME(cycle, nap_ns), .scale = 1e3,
     .when = LHI_OPTIONAL},
    {"serial", LHI_INTEGER(cycle, serial), .least = INT64_MIN,
     .most = INT64_MAX},
    {"seed", LHI_INTEGER(cycle, seed), .least = INT64_MIN, .most = INT64_MAX,
     .when = LHI_DEFAULTED},
    {"doors", LHI_TEXT_FORM(cycle, doors), .description = "a letter",
     .parse = parse_letter, .print = print_letter,
     LHI_OMIT_IF(cycle, electric, false)},
    {"area", LHI_DERIVED(cycle), .write = write_area},
    {NULL, LHI_INLINED(cycle, frame), .table = &frame_table},
    {"bell", LHI_STRUCT_POINTER(cycle, bell), .table = &bell_table,
     .when = LHI_OPTIONAL},
    {"wheels", LHI_LIST(cycle, wheels, n_wheels), .table = &wheel_table,
     .min_items = 1, .max_items = 2},
    {"gears", LHI_LIST(cycle, gears, n_gears), .item_type = LHI_FIELD_INTEGER,
     .least = 1, .most = 50, .when = LHI_OPTIONAL},
    {"trips_s", LHI_LIST(cycle, trips_ns, n_trips),
     .item_type = LHI_FIELD_SECONDS, .high = 9e9, .absent = -1,
     .null_items = true},
    {"wax", LHI_CUSTOM(cycle), .read = read_wax, .write = write_wax},
};
static const lhi_schema cycle_table = {LHI_ROWS("cycle", cycle, cycle_rows),
                                       start_cycle, check_cycle};

static const char whole_text[] = "{\n"
                                 " \"name\": \"\",\n"
                                 " \"note\": \"a\\\"b\",\n"
                                 " \"paint\": \"green\",\n"
                                 " \"electric\": true,\n"
                                 " \"drive\": \"gears\",\n"
                                 " \"sale\": {\n"
                                 "  \"price\": -0.5,\n"
                                 "  \"sold_s\": null\n"
                                 " },\n"
                                 " \"range\": 12.25,\n"
                                 " \"built_s\": 1.000000001,\n"
                                 " \"mean_s\": 2.0,\n"
                                 " \"gbps\": 8.0,\n"
                                 " \"kib\": 3,\n"
                                 " \"nap_us\": 0.25,\n"
                                 " \"serial\": -9223372036854775808,\n"
                                 " \"seed\": -1,\n"
                                 " \"doors\": \"c\",\n"
                                 " \"area\": 6000000,\n"
                                 " \"height\": 2000,\n"
                                 " \"width\": 3000,\n"
                                 " \"bell\": {\n"
                                 "  \"tone\": 7.5\n"
                                 " },\n"
                                 " \"wheels\": [\n"
                                 "  {\n"
                                 "   \"spokes\": 3,\n"
                                 "   \"maker\": \"x\"\n"
                                 "  },\n"
                                 "  {\n"
                                 "   \"spokes\": 99,\n"
                                 "   \"maker\": \"y\"\n"
                                 "  }\n"
                                 " ],\n"
                                 " \"gears\": [\n"
                                 "  1,\n"
                                 "  50\n"
                                 " ],\n"
                                 " \"trips_s\": [\n"
                                 "  1.5,\n"
                                 "  null\n"
                                 " ],\n"
                                 " \"wax\": 4\n"
                                 "}\n";

static const char least_text[] =
    "{name: \"n\", paint: red, electric: false, sale: {price: 1, sold_s: 3},"
    " built_s: 0, mean_s: 0, gbps: null, serial: 5, height: 2,"
    " wheels: [{spokes: 4, maker: m}], trips_s: [], wax: 0}";

static int64_t grease = 1000;

/* On success, *doc and *mem belong to the caller. */
static lh_status read_cycle(const char *text, int64_t unit_ns, lhi_doc **doc,
                            lhi_arena **mem, cycle *out, lh_error *err)
{
    *mem = lhi_arena_make(0);
    *doc = NULL;
    *out = (cycle){0};
    lh_status status =
        *mem ? lhi_doc_parse(text, strlen(text), "f", LHI_INPUT_JOB, doc, err)
             : LH_ENOMEM;
    if (status == LH_OK) {
        lhi_read_context r = {*doc, *mem, unit_ns, &grease};
        status = lhi_schema_read(&r, (*doc)->root, &cycle_table, out, err);
    }
    if (status != LH_OK) {
        lhi_arena_free(*mem);
        lhi_doc_free(*doc);
    }
    return status;
}

static void what_is_written_reads_back(void)
{
    lh_error err = {0};
    lhi_doc *doc;
    lhi_arena *mem;
    cycle c;
    CHECK_OK(read_cycle(whole_text, 1, &doc, &mem, &c, &err), err);
    if (err.text[0])
        return;
    CHECK(c.paint == GREEN && c.electric && c.geared);
    CHECK_INT(c.sold_ns, -1);
    CHECK_INT(c.built_ns, 1000000001);
    CHECK_NEAR(c.mean_ns, 2e9, 0);
    CHECK_NEAR(c.bytes_per_s, 1e9, 0);
    CHECK_NEAR(c.bytes, 3072, 0);
    CHECK_INT(c.nap_ns, 250);
    CHECK_INT(c.serial, INT64_MIN);
    CHECK_INT(c.seed, UINT64_MAX);
    CHECK_INT(c.doors, 2);
    CHECK_INT(c.frame.width, 3000);
    CHECK_NEAR(c.bell->tone, 7.5, 0);
    CHECK_INT(c.n_wheels, 2);
    CHECK_INT(c.wheels[1].spokes, 99);
    CHECK_INT(c.gears[1], 50);
    CHECK_INT(c.trips_ns[1], -1);
    CHECK_INT(c.wax, 1004);
    char *text = NULL;
    CHECK_OK(lhi_json_format(lhi_schema_write(&cycle_table, &c, &grease), &text,
                             NULL, &err),
             err);
    CHECK_STR(text, whole_text);
    lh_text_free(text);
    lhi_doc_free(doc);
    lhi_arena_free(mem);
}

static void what_is_absent_is_not_written(void)
{
    lh_error err = {0};
    lhi_doc *doc;
    lhi_arena *mem;
    cycle c;
    CHECK_OK(read_cycle(least_text, 1000, &doc, &mem, &c, &err), err);
    if (err.text[0])
        return;
    CHECK_INT(c.seed, 77);
    CHECK_INT(c.frame.height, 2000);
    CHECK(!c.bell && !c.note && !c.geared && c.n_trips == 0);
    json_t *map = lhi_schema_write(&cycle_table, &c, &grease);
    static const char *const gone[] = {"note",  "drive", "range",
                                       "doors", "bell",  "gears"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        CHECK_MSG(!json_object_get(map, gone[i]), "%s is there", gone[i]);
    CHECK(json_is_null(json_object_get(map, "gbps")));
    CHECK_INT(json_integer_value(json_object_get(map, "seed")), 77);
    json_decref(map);
    lhi_doc_free(doc);
    lhi_arena_free(mem);
}

static void numbers_names_and_words_as_plain_text(void)
{
    static const lhi_schema_field rows[] = {
        {"serial", LHI_INTEGER(cycle, serial)},
        {"drive", LHI_ENUM(cycle, geared), .names = drives},
        {"note", LHI_STRING(cycle, note), .when = LHI_OPTIONAL},
        {"doors", LHI_TEXT_FORM(cycle, doors), .print = print_letter},
    };
    static const lhi_schema table = {LHI_ROWS("few", cycle, rows)};
    cycle c = {.serial = -3, .doors = 1};
    lhi_text text = {0};
    lhi_schema_add_text(&text, &table, &c);
    CHECK_STR(text.data, "\"serial\":-3,\"drive\":\"chain\",\"doors\":\"b\"");
    lhi_text_fini(&text);
}

/* Checks that the file is rejected with `from` replaced by `to`. */
static void refuse(const char *from, const char *to, const char *says)
{
    char text[1024];
    const char *at = strstr(least_text, from);
    CHECK_MSG(at, "no '%s' to replace", from);
    if (!at)
        return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - least_text), least_text,
             to, at + strlen(from));
    lh_error err = {0};
    lhi_doc *doc;
    lhi_arena *mem;
    cycle c;
    lh_status status = read_cycle(text, 1, &doc, &mem, &c, &err);
    CHECK_INT(status, LH_EINPUT);
    CHECK_HAS(err.text, says);
    if (status == LH_OK) {
        lhi_doc_free(doc);
        lhi_arena_free(mem);
    }
}

static void refusals_name_file_line_and_key(void)
{
    refuse("wax: 0", "wax: 0, wex: 1",
           "f:1: wex: unknown key; did you mean 'wax'?");
    refuse("wax: 0", "wax: 0, heigth: 1",
           "f:1: heigth: unknown key; did you mean 'height'?");
    refuse("price: 1", "price: 1, pryce: 2",
           "f:1: sale.pryce: unknown key; did you mean 'price'?");
    refuse("name: \"n\", ", "", "f:1: key 'name' is missing");
    refuse("height: 2, ", "", "f:1: key 'height' is missing");
    refuse("sale: {price: 1, sold_s: 3}", "sale: 1",
           "f:1: sale: must be a map of keys and values");
    refuse(", sold_s: 3", "", "f:1: sale: key 'sold_s' is missing");
    refuse("name: \"n\"", "name: n", "f:1: name: must be a quoted string");
    refuse("wax: 0", "wax: 0, note: [1]", "f:1: note: must be a string");
    refuse("maker: m", "maker: ''", "f:1: wheels[0].maker: must not be empty");
    refuse("paint: red", "paint: blue",
           "f:1: paint: must be red or green, not 'blue'");
    refuse("electric: false", "electric: 0",
           "f:1: electric: must be true or false, not '0'");
    refuse("price: 1", "price: -1.5",
           "f:1: sale.price: -1.5 is out of range; from -1 to 1000000 is");
    refuse("sold_s: 3", "sold_s: -1", "f:1: sale.sold_s: -1 is out of range");
    refuse("built_s: 0", "built_s: null", "f:1: built_s: must be a number");
    refuse("gbps: null", "gbps: 2e9", "f:1: gbps: 2e9 is out of range");
    refuse("wax: 0", "wax: 0, kib: 2e9", "f:1: kib: 2e9 is out of range");
    refuse("wax: 0", "wax: 0, nap_us: 4e9",
           "f:1: nap_us: 4e9 is out of range; at most an hour (3600000000)");
    refuse("serial: 5", "serial: 1.5",
           "f:1: serial: must be a whole number, not '1.5'");
    refuse("height: 2", "height: -2", "f:1: height: -2 is out of range");
    refuse(
        "spokes: 4", "spokes: 2",
        "f:1: wheels[0].spokes: 2 is out of range; from 3 to 99 is possible");
    refuse("electric: false", "electric: true, doors: C",
           "f:1: doors: must be a letter");
    refuse("wax: 0", "wax: 0, bell: {}", "f:1: bell: key 'tone' is missing");
    refuse("wax: 0", "wax: 0, bell: {tone: 21}",
           "f:1: bell.tone: 21 is out of range; from 0.5 to 20 is possible");
    refuse("[{spokes: 4, maker: m}]", "[]",
           "f:1: wheels: has 0 entries; at least 1 are required");
    refuse("[{spokes: 4, maker: m}]", "[1, 2, 3]",
           "f:1: wheels: has 3 entries; at most 2 are allowed");
    refuse("[{spokes: 4, maker: m}]", "4", "f:1: wheels: must be a list");
    refuse("{spokes: 4, maker: m}", "7", "f:1: wheels[0]: must be a map");
    refuse("wax: 0", "wax: 0, gears: [1, 51]",
           "f:1: gears[1]: 51 is out of range; from 1 to 50 is possible");
    refuse("trips_s: []", "trips_s: [null, 1, x]",
           "f:1: trips_s[2]: must be a number, not 'x'");
    refuse("wax: 0", "wax: 10", "f:1: wax: 10 is out of range");
    refuse("wax: 0", "wax: 0, area: 1", "f:1: area: is not height x width");
}

static void count_rows(const lhi_schema *table, const lhi_schema_field *row,
                       void *n)
{
    CHECK_INT(table->size, row->owner);
    CHECK(lhi_schema_find_field(table, row->key) == row);
    ++*(int *)n;
}

static void all_rows_are_walked(void)
{
    int n = 0;
    lhi_schema_walk(&cycle_table, count_rows, &n);
    CHECK_INT(n, 21 + 2 + 2 + 1 + 2);
    CHECK(lhi_schema_find_field(&cycle_table, "width") == &frame_rows[1]);
    CHECK(lhi_schema_find_field(&cycle_table, "tone") == NULL);
}

static void any_allocation_may_fail(void)
{
    FAIL_EACH_ALLOC({
        lhi_doc *doc;
        lhi_arena *mem;
        cycle c;
        lh_error err;
        char *text = NULL;
        status = read_cycle(whole_text, 1, &doc, &mem, &c, &err);
        if (status == LH_OK) {
            status = lhi_json_format(
                lhi_schema_write(&cycle_table, &c, &grease), &text, NULL, &err);
            lhi_doc_free(doc);
            lhi_arena_free(mem);
        }
        CHECK((status == LH_OK) == (text != NULL));
        if (text)
            CHECK_STR(text, whole_text);
        lh_text_free(text);
    });
}

int main(void)
{
    RUN(what_is_written_reads_back);
    RUN(what_is_absent_is_not_written);
    RUN(numbers_names_and_words_as_plain_text);
    RUN(refusals_name_file_line_and_key);
    RUN(all_rows_are_walked);
    RUN(any_allocation_may_fail);
    return test_summary();
}
