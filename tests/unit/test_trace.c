/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: created from simulations, written, read back, rejected. */
#include "test.h"

#include "base/text.h"
#include "report/trace/json_text.h"
#include "report/trace/trace_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/trace.h>
#include <stdlib.h>

static lh_pass pass(uint32_t chunk, lh_pass_kind kind, uint32_t microbatch)
{
    return (lh_pass){.chunk = chunk,
                     .microbatch = microbatch,
                     .n_parts = 1,
                     .kind = (uint8_t)kind};
}

/* GPipe with split backward: all F, all D, then all W. */
static lh_schedule *gpipe(uint32_t n_devices, uint32_t n_microbatches)
{
    lh_schedule *s = NULL;
    lh_error err;
    uint32_t n = 3 * n_microbatches;
    lh_pass *all = calloc((size_t)n * n_devices, sizeof *all);
    const lh_pass **orders = calloc(n_devices, sizeof *orders);
    uint32_t *counts = calloc(n_devices, sizeof *counts);
    for (uint32_t d = 0; d < n_devices; d++) {
        orders[d] = all + (size_t)d * n;
        counts[d] = n;
        for (uint32_t i = 0; i < n; i++)
            all[(size_t)d * n + i] =
                pass(d, (lh_pass_kind)(i / n_microbatches), i % n_microbatches);
    }
    CHECK_OK(lh_schedule_make(n_devices, orders, counts, 0, NULL, &s, &err),
             err);
    free(all);
    free(orders);
    free(counts);
    return s;
}

static lh_trace *simulated(const char *pipeline_text, const char *title)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_timeline *timeline = NULL;
    lh_trace *trace = NULL;
    CHECK_OK(lh_pipeline_parse(pipeline_text, strlen(pipeline_text), "p.yaml",
                               &p, &err),
             err);
    if (!p)
        return NULL;
    lh_schedule *s =
        gpipe(lh_pipeline_n_devices(p), lh_pipeline_n_microbatches(p));
    CHECK_OK(lh_simulate(p, s, NULL, &timeline, &err), err);
    if (timeline)
        CHECK_OK(lh_trace_make(p, timeline, title, &trace, &err), err);
    lh_timeline_free(timeline);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return trace;
}

static const char two_devices[] =
    "longhaul: pipeline/1\n"
    "time_unit: ns\n"
    "microbatches: 3\n"
    "devices: 2\n"
    "backward: split\n"
    "chunks:\n"
    "  - {device: 0, F: 1001, D: 1500, W: 1499,\n"
    "     memory: {F: 3, D: -1, W: -2, static: 7}}\n"
    "  - {device: 1, F: 1001, D: 1500, W: 1499, memory: {F: 3, D: -1, W: -2}}\n"
    "links:\n"
    "  - {from: 0, to: 1, latency: 20000, transfer: 1234, name: west-east}\n"
    "  - {from: 1, to: 0, latency: 20000, transfer: 1234}\n"
    "memory_limit: 40\n"
    "memory_unit: GiB\n"
    "data_parallel:\n"
    "  - {chunk: 0, all_gather: 500, reduce_scatter: 700, latency: 3}\n";

static void same_again(const lh_trace *trace)
{
    lh_error err = {0};
    char *text = NULL, *again = NULL;
    size_t len = 0, len_again = 0;
    lh_trace *back = NULL;
    CHECK_OK(lh_trace_format(trace, &text, &len, &err), err);
    CHECK_OK(lh_trace_parse(text, len, "t.json", &back, &err), err);
    if (back) {
        CHECK_INT(back->n_runs, trace->n_runs);
        CHECK_INT(back->n_messages, trace->n_messages);
        CHECK_INT(back->n_collectives, trace->n_collectives);
        CHECK_INT(back->makespan_ns, trace->makespan_ns);
        CHECK_STR(back->title, trace->title);
        for (uint32_t d = 0; d < trace->n_devices; d++) {
            CHECK_INT(back->devices[d].site, trace->devices[d].site);
            CHECK_INT(back->devices[d].memory_limit,
                      trace->devices[d].memory_limit);
        }
        for (uint32_t i = 0; i < trace->n_messages; i++)
            CHECK(back->messages[i].arrive_ns == trace->messages[i].arrive_ns);
        CHECK_OK(lh_trace_format(back, &again, &len_again, &err), err);
        CHECK_INT(len_again, len);
        CHECK(again && strcmp(text, again) == 0);
    }
    lh_text_free(text);
    lh_text_free(again);
    lh_trace_free(back);
}

/* With 2 groups on 1 device: AGF before the second, RSG of the first, RSO of
 * the last, as in the pipeline. */
static void operations_keep_their_kind(void)
{
    lh_trace *t =
        simulated("longhaul: pipeline/1\nmicrobatches: 2\ndevices: 1\n"
                  "uniform: {placement: ud, F: 6, D: 6, W: 6}\n"
                  "data_parallel: {elastic: {enqueue: [1, 1], dequeue: [1, 1], "
                  "transfer: 2, gradients: 1, parameters: 0.5, "
                  "buckets: {scatter: 1, forward: 1, backward: 1}}}\n",
                  "kinds");
    uint32_t seen[LH_DP_RSO + 1] = {0};
    char *text = NULL;
    size_t len;
    lh_error err = {0};
    if (!t)
        return;
    same_again(t);
    CHECK_OK(lh_trace_format(t, &text, &len, &err), err);
    lh_trace *back = NULL;
    CHECK_OK(lh_trace_parse(text, len, "t.json", &back, &err), err);
    for (uint32_t i = 0; back && i < back->n_collectives; i++)
        seen[back->collectives[i].kind]++;
    CHECK_INT(seen[LH_DP_ANY], 2);
    CHECK_INT(seen[LH_DP_AGF], 1);
    CHECK_INT(seen[LH_DP_AGB], 1);
    CHECK_INT(seen[LH_DP_RSG], 1);
    CHECK_HAS(text, "\"AGF 0\"");
    char *at = strstr(text, "\"AGF\"");
    CHECK(at != NULL);
    if (at)
        memcpy(at, "\"RSG\"", 5);
    lh_trace_free(back);
    back = NULL;
    CHECK_INT(lh_trace_parse(text, len, "t.json", &back, &err), LH_EINPUT);
    CHECK_HAS(err.text, "its kind is not one of an all-gather");
    lh_text_free(text);
    lh_trace_free(t);
}

static void made_from_a_simulation(void)
{
    lh_trace *t = simulated(two_devices, "two devices");
    if (!t)
        return;
    CHECK_STR(t->title, "two devices");
    CHECK_STR(t->source, "simulated");
    CHECK_STR(t->memory_unit, "GiB");
    CHECK_INT(t->n_runs, 18);
    CHECK_INT(t->n_messages, 6);
    CHECK_INT(t->n_collectives, 2);
    CHECK_INT(t->devices[0].memory_static, 7);
    CHECK_INT(t->devices[0].memory_limit, 40);
    /* The all-gather (500 + 3) delays the first F. */
    CHECK_INT(t->runs[0].start_ns, 503);
    CHECK_INT(t->runs[0].memory, 10);
    CHECK_INT(t->runs[2].memory, 16);
    /* Device 1 starts when the first message arrives. */
    CHECK_INT(t->runs[9].start_ns, 503 + 1001 + 1234 + 20000);
    CHECK(t->runs[9].waits_for != LH_NONE);
    /* The first D keeps the memory that it frees until its end. */
    CHECK_INT(t->runs[12].memory, 9);
    CHECK_INT(t->runs[12].memory_after, 8);
    same_again(t);
    lh_trace_free(t);
}

static void shows_what_viewers_need(void)
{
    lh_trace *t = simulated(two_devices, NULL);
    lh_error err = {0};
    char *text = NULL;
    CHECK_OK(lh_trace_format(t, &text, NULL, &err), err);
    CHECK_HAS(text, "\"name\":\"process_name\"");
    CHECK_HAS(text, "\"name\":\"west-east\"");
    CHECK_HAS(text, "\"name\":\"1-0\"");
    CHECK_HAS(text, "{\"ph\":\"X\",\"ts\":0.503,\"dur\":1.001,\"name\":\"0F0\","
                    "\"cat\":\"pass\",\"pid\":1,\"tid\":1,");
    /* 503 + 1001 - 1 ns: inside the slice. */
    CHECK_HAS(text, "{\"ph\":\"s\",\"ts\":1.503,");
    CHECK_HAS(text, "{\"ph\":\"f\",\"ts\":22.738,");
    CHECK_HAS(text, "\"name\":\"memory, device 0\",\"pid\":1,"
                    "\"args\":{\"GiB\":10}");
    CHECK_HAS(text, "\"args\":{\"waiting\":0,\"sending\":1,\"in flight\":0}");
    CHECK_HAS(text, "\"name\":\"all-gather 0\"");
    lh_text_free(text);
    lh_trace_free(t);
}

static void odd_names_survive(void)
{
    static const char *const sites[] = {"", "a\"b\\c</script>"};
    static const char *const links[] = {
        "l\xe2\x80\xa8\x7f\xc2\x85 \xf0\x9f\x9a\x80"};
    lh_trace_device devices[] = {{0, 0, LH_NO_LIMIT, "\"<\xe2\x80\xa8"},
                                 {1, -5, -7, ""}};
    lh_trace_run runs[] = {{.pass = pass(0, LH_F, 0),
                            .waits_for = LH_NONE,
                            .end_ns = INT64_C(1) << 53,
                            .issued_ns = INT64_C(1) << 53,
                            .memory = INT64_MIN,
                            .memory_after = INT64_MAX}};
    lh_trace t = {.title = "tab\there\nthere \xe2\x80\xa9 <!--",
                  .source = "measured",
                  .n_devices = 2,
                  .n_sites = 2,
                  .n_links = 1,
                  .devices = devices,
                  .site_names = sites,
                  .link_names = links,
                  .n_runs = 1,
                  .runs = runs,
                  .makespan_ns = INT64_C(1) << 53};
    lh_trace *copy = NULL;
    lh_error err = {0};
    char *text = NULL;
    CHECK_OK(lh_trace_copy(&t, &copy, &err), err);
    same_again(copy);
    CHECK(copy && copy->devices[1].dp_link == NULL);
    CHECK_OK(lh_trace_format(copy, &text, NULL, &err), err);
    CHECK(text && !strchr(text, '<'));
    CHECK_HAS(text, "\\u2028");
    lh_text_free(text);
    lh_trace_free(copy);
    t.title = "\xff";
    CHECK_INT(lh_trace_copy(&t, &copy, &err), LH_EINVAL);
    CHECK_HAS(err.text, "UTF-8");
}

static void nothing_at_all(void)
{
    static const char *const names[] = {""};
    lh_trace_device device = {0, 0, LH_NO_LIMIT, NULL};
    lh_trace t = {.source = "simulated",
                  .n_devices = 1,
                  .n_sites = 1,
                  .devices = &device,
                  .site_names = names};
    lh_trace *copy = NULL;
    lh_error err = {0};
    CHECK_OK(lh_trace_copy(&t, &copy, &err), err);
    same_again(copy);
    lh_trace_free(copy);
}

/* Input out of order; messages that overlap on their link, as measured ones
 * may, get lanes. */
static void put_in_order(void)
{
    static const char *const names[] = {"x"};
    lh_trace_device devices[] = {{0, 0, LH_NO_LIMIT, NULL},
                                 {0, 0, LH_NO_LIMIT, NULL}};
    lh_trace_run runs[] = {
        {pass(1, LH_F, 1), 1, 0, 90, 100, 100, 0, 0},
        {pass(1, LH_F, 0), 1, 1, 70, 90, 95, 0, 0},
        {pass(0, LH_F, 1), 0, LH_NONE, 10, 20, 20, 0, 0},
        {pass(0, LH_F, 0), 0, LH_NONE, 0, 10, 10, 0, 0},
    };
    lh_trace_message messages[] = {
        {pass(0, LH_F, 1), pass(1, LH_F, 1), 0, 1, 0, 20, 20, 20, 60, 80},
        {pass(0, LH_F, 0), pass(1, LH_F, 0), 0, 1, 0, 10, 10, 10, 50, 70},
    };
    lh_trace t = {.source = "measured",
                  .makespan_ns = 100,
                  .n_devices = 2,
                  .n_sites = 1,
                  .n_links = 1,
                  .devices = devices,
                  .site_names = names,
                  .link_names = names,
                  .n_runs = 4,
                  .runs = runs,
                  .n_messages = 2,
                  .messages = messages};
    lh_trace *copy = NULL;
    lh_error err = {0};
    char *text = NULL;
    CHECK_OK(lh_trace_copy(&t, &copy, &err), err);
    if (!copy)
        return;
    CHECK_INT(copy->runs[0].pass.microbatch, 0);
    CHECK_INT(copy->runs[2].device, 1);
    CHECK_INT(copy->runs[2].waits_for, 0);
    CHECK_INT(copy->messages[0].arrive_ns, 70);
    same_again(copy);
    CHECK_OK(lh_trace_format(copy, &text, NULL, &err), err);
    CHECK_HAS(text, "lane 2");
    CHECK_HAS(text, "\"issued_ns\":95");
    lh_text_free(text);
    lh_trace_free(copy);

    runs[2].start_ns = 9;
    CHECK_INT(lh_trace_copy(&t, &copy, &err), LH_EINVAL);
    CHECK_STR(err.text, "runs[2]: 0F1 starts before 0F0 ends on device 0");
    runs[2].start_ns = 10;
    runs[2].pass.microbatch = 0;
    CHECK_INT(lh_trace_copy(&t, &copy, &err), LH_EINVAL);
    CHECK_STR(err.text, "runs[3]: pass 0F0 appears twice");
    runs[2].pass.microbatch = 1;
    runs[0].waits_for = 1;
    CHECK_INT(lh_trace_copy(&t, &copy, &err), LH_EINVAL);
    CHECK_HAS(err.text, "for another pass");
    runs[0].waits_for = 0;
    messages[1].from = 1;
    CHECK_INT(lh_trace_copy(&t, &copy, &err), LH_EINVAL);
    CHECK_HAS(err.text, "its producer 0F0 did not run on device 1");
    messages[1].from = 0;
    messages[0].depart_ns = 19;
    CHECK_INT(lh_trace_copy(&t, &copy, &err), LH_EINVAL);
    CHECK_HAS(err.text, "messages[0]: produced, ready");
}

/* --- errors --------------------------------------------------------------- */

static const char small[] =
    "{\"longhaul\":\"trace/1\",\n\"title\":\"\",\n\"source\":\"measured\",\n"
    "\"makespan_ns\":10,\n\"memory_unit\":\"\",\n\"sites\":[\"\"],\n"
    "\"links\":[],\n\"devices\":[{\"site\":0,\"memory_static\":0}],\n"
    "\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n"
    "{\"ph\":\"X\",\"ts\":0,\"dur\":0.01,\"name\":\"0F0\",\"cat\":\"pass\","
    "\"pid\":1,\"tid\":1,\"args\":{\"start_ns\":0,\"end_ns\":10,\"memory\":0,"
    "\"memory_after\":0}},\n"
    "{\"ph\":\"i\",\"name\":\"a note of someone's\",\"ts\":3}\n]}\n";

static lh_status parse(const char *text, lh_error *err)
{
    lh_trace *t = NULL;
    lh_status status = lh_trace_parse(text, strlen(text), "t.json", &t, err);
    lh_trace_free(t);
    return status;
}

/* Checks that `small` is rejected with `from` replaced. */
static void refused(const char *from, const char *to, const char *why)
{
    char text[2048];
    lh_error err = {0};
    const char *at = strstr(small, from);
    CHECK(at != NULL);
    if (!at)
        return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, to,
             at + strlen(from));
    CHECK_INT(parse(text, &err), LH_EINPUT);
    CHECK_HAS(err.text, why);
}

static void refusals(void)
{
    lh_error err = {0};
    CHECK_OK(parse(small, &err), err);
    refused("trace/1", "trace/2", "t.json:1: longhaul");
    refused("\"longhaul\":\"trace/1\",", "", "not one of longhaul's");
    refused("\"source\":\"measured\"", "\"source\":\"dreamt\"",
            "must be 'simulated' or 'measured'");
    refused("\"title\":\"\"", "\"title\":7",
            "t.json:2: title: must be a quoted string");
    refused("\"links\":[]", "\"links\":[],\"lonks\":[]",
            "did you mean 'links'");
    refused("\"makespan_ns\":10", "\"makespan_ns\":1e99", "t.json:4:");
    refused("\"name\":\"0F0\"", "\"name\":\"0G0\"",
            "t.json:11: traceEvents[0].name: must be a pass");
    refused("\"tid\":1", "\"tid\":2", "t.json:11: traceEvents[0].tid");
    refused("\"tid\":1", "\"tid\":0", "t.json:11:");
    refused("\"end_ns\":10", "\"end_ns\":11", "dur: differs from the 11 ns");
    refused("\"ts\":0,", "\"ts\":0.003,", "ts: differs from the 0 ns");
    refused("\"end_ns\":10", "\"end_ns\":-1", "t.json:11:");
    refused("\"end_ns\":10", "\"end_ns\":10,\"color\":1", "unknown key");
    refused("\"memory\":0", "\"memory\":99999999999999999999", "memory");
    refused("\"memory\":0", "\"memory\":0,\"waits_for\":4",
            "t.json:11: waits for message 4, but the trace has 0");
    refused("\"site\":0", "\"site\":1", "site that does not exist");
    refused("{\"ph\":\"i\"", "7,{\"ph\":\"i\"",
            "traceEvents[1]: must be a map");
    CHECK_INT(parse("[{\"ph\":\"X\"}]", &err), LH_EINPUT);
    CHECK_INT(parse("", &err), LH_EINPUT);
    for (size_t cut = 1; cut + 4 < sizeof small; cut += 7) {
        char text[sizeof small];
        memcpy(text, small, cut);
        text[cut] = '\0';
        CHECK_INT(parse(text, &err), LH_EINPUT);
    }
}

static void reject(const lh_trace *t, const char *why)
{
    lh_trace *copy = NULL;
    lh_error err = {0};
    CHECK_INT(lh_trace_copy(t, &copy, &err), LH_EINVAL);
    CHECK_HAS(err.text, why);
    CHECK(!copy);
}

/* Sets one field of the trace, or of its first run, message, collective or
 * copy, to a wrong value at a time. */
static void wrong_fields_are_refused(void)
{
    const lh_pass pass = {.n_parts = 1}, cut = {.n_parts = 2};
    char *sites[] = {"a"}, *links[] = {"l"};
    lh_trace_device device = {0};
    lh_trace_run run = {
        .pass = pass, .waits_for = LH_NONE, .end_ns = 1, .issued_ns = 1};
    lh_trace_message message = {.producer = pass, .consumer = pass};
    lh_trace_collective collective = {0};
    lh_trace_offload copy = {0};
    lh_trace t = {.source = "measured",
                  .n_devices = 1,
                  .n_sites = 1,
                  .n_links = 1,
                  .devices = &device,
                  .site_names = (const char *const *)sites,
                  .link_names = (const char *const *)links,
                  .n_runs = 1,
                  .runs = &run,
                  .n_messages = 1,
                  .messages = &message,
                  .n_collectives = 1,
                  .collectives = &collective,
                  .n_copies = 1,
                  .copies = &copy,
                  .makespan_ns = 1};
    lh_trace *good = NULL;
    lh_error err = {0};
    CHECK_OK(lh_trace_copy(&t, &good, &err), err);
    lh_trace_free(good);
#define REJECT(field, value, why)                                              \
    do {                                                                       \
        const __typeof__(field) was = field;                                   \
        field = value;                                                         \
        reject(&t, why);                                                       \
        field = was;                                                           \
    } while (0)
    REJECT(t.n_devices, 65537, "the number of devices must be 1 to 65536");
    REJECT(t.n_sites, 0, "the number of sites must be 1 to 65536");
    REJECT(t.n_links, UINT32_MAX, "too many links");
    REJECT(t.makespan_ns, -1, "the makespan must be 0 to 2^53 ns");
    REJECT(t.makespan_ns, (INT64_C(1) << 53) + 1, "the makespan must be 0 to");
    REJECT(t.source, "dreamt", "the source must be 'simulated' or 'measured'");
    REJECT(run.pass, cut, "is not a valid pass");
    REJECT(run.issued_ns, 0, "start, end and issued must be non-decreasing");
    REJECT(message.consumer, cut, "connects passes that are not valid");
    REJECT(message.to, 1, "from device 0 to device 1; the trace has 1 devices");
    REJECT(message.link, 1, "link 1 is out of range; the trace has 1");
    REJECT(message.ready_ns, 1,
           "produced, ready, depart, sent and arrive must");
    REJECT(collective.device, 1, "chunk 0 on device 1 is out of range");
    REJECT(collective.depart_ns, 1, "ready, depart, sent and arrive must be");
    REJECT(collective.kind, LH_DP_RSG, "its kind is not one of an all-gather");
    REJECT(collective.bucket, 1, "bucket 1 is out of range; the collective");
    REJECT(copy.device, 1, "chunk 0, microbatch 0 on device 1 is out of range");
    REJECT(copy.ready_ns, 1, "ready, depart and end must be non-decreasing");
#undef REJECT
}

static void passes_from_text(void)
{
    static const char *const good[] = {"0F0", "12I34", "65535B1048575",
                                       "0W3:2/8", "1W1:4095/4096"};
    static const char *const bad[] = {
        "",        "F",       "0F",      "F0",
        "0f0",     "0F0 ",    "65536F0", "0F1048576",
        "0W3:8/8", "0F3:2/8", "0W3:0/1", "0W3:1/4097",
        "0W3:",    "-1F0",    "0D0",     "99999999999999999999F0"};
    char text[LH_PASS_TEXT_SIZE];
    lh_pass p;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(lhi_parse_pass(good[i], &p));
        CHECK_STR(lh_pass_format(&p, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!lhi_parse_pass(bad[i], &p), "'%s' was taken", bad[i]);
}

static void utf8(void)
{
    CHECK(lhi_is_utf8("plain, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x9a\x80"));
    CHECK(!lhi_is_utf8("\xc0\x80"));         /* overlong */
    CHECK(!lhi_is_utf8("\xed\xa0\x80"));     /* surrogate */
    CHECK(!lhi_is_utf8("\xf4\x90\x80\x80")); /* beyond Unicode */
    CHECK(!lhi_is_utf8("\xe2\x82"));         /* truncated */
    CHECK(!lhi_is_utf8("\x80"));
}

static void many_passes(void)
{
    char text[512];
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 500\n"
             "devices: 16\nuniform: {placement: ud, F: 10, D: 10, W: 10, "
             "memory: {F: 2, D: -1, W: -1}}\n"
             "datacenters: {count: 2, latency: 20, transfer: 11}\n");
    lh_trace *t = simulated(text, "many");
    if (!t)
        return;
    CHECK_INT(t->n_runs, 24000);
    same_again(t);
    lh_trace_free(t);
}

int main(void)
{
    RUN(made_from_a_simulation);
    RUN(operations_keep_their_kind);
    RUN(shows_what_viewers_need);
    RUN(odd_names_survive);
    RUN(nothing_at_all);
    RUN(put_in_order);
    RUN(refusals);
    RUN(wrong_fields_are_refused);
    RUN(passes_from_text);
    RUN(utf8);
    RUN(many_passes);
    return test_summary();
}
