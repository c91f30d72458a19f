/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier: one valid schedule, and one for each kind of violation. */
#include "test.h"

#include <longhaul/experimental/check.h>
#include <longhaul/experimental/schedule.h>

static const char split[] =
    "longhaul: pipeline/1\n"
    "time_unit: ns\n"
    "microbatches: 2\n"
    "devices: 2\n"
    "chunks:\n"
    "  - {device: 0, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
    "  - {device: 1, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
    "links:\n"
    "  - {from: 0, to: 1, latency: 5, transfer: 1}\n"
    "  - {from: 1, to: 0, latency: 5, transfer: 2, name: back}\n"
    "memory_limit: 2\n";

static const char joint[] = "longhaul: pipeline/1\n"
                            "time_unit: ns\n"
                            "microbatches: 1\n"
                            "devices: 1\n"
                            "backward: joint\n"
                            "chunks: [{device: 0, F: 1, D: 2, W: 3}]\n";

static lh_verdict *judge_with(const char *pipeline_text, const char *csv,
                              uint32_t n_links, const lh_link_order *links)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *plain = NULL, *s = NULL;
    lh_verdict *v = NULL;
    CHECK_OK(
        lh_pipeline_parse(pipeline_text, strlen(pipeline_text), "p", &p, &err),
        err);
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s", &plain, &err), err);
    uint32_t n = lh_schedule_n_devices(plain), counts[8];
    const lh_pass *orders[8];
    for (uint32_t d = 0; d < n; d++)
        orders[d] = lh_schedule_order(plain, d, &counts[d]);
    CHECK_OK(lh_schedule_make(n, orders, counts, n_links, links, &s, &err),
             err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    lh_pipeline_free(p);
    lh_schedule_free(plain);
    lh_schedule_free(s);
    return v;
}

static lh_verdict *judge(const char *pipeline_text, const char *csv)
{
    return judge_with(pipeline_text, csv, 0, NULL);
}

/* Checks that the schedule has `total` violations, among them `text`. */
static void expect_of(lh_verdict *v, uint64_t total, const char *text)
{
    uint64_t got;
    uint32_t n = lh_verdict_n_violations(v, &got), found = 0;
    CHECK_INT(got, total);
    CHECK(!lh_verdict_valid(v));
    for (uint32_t i = 0; i < n; i++)
        found += strcmp(lh_verdict_violation(v, i), text) == 0;
    CHECK_MSG(found == 1, "'%s' is said %u times", text, (unsigned)found);
    for (uint32_t i = 0; i < n && found != 1; i++)
        fprintf(stderr, "  said: %s\n", lh_verdict_violation(v, i));
    lh_verdict_free(v);
}

static void expect(const char *csv, uint64_t total, const char *text)
{
    expect_of(judge(split, csv), total, text);
}

#define ROW0 "0F0,0F1,0I0,0W0,0I1,0W1\n"
#define ROW1 "1F0,1I0,1F1,1I1,1W0,1W1\n"

static void accepts_a_valid_one(void)
{
    lh_verdict *v = judge(split, ROW0 ROW1);
    uint64_t total;
    CHECK_INT(lh_verdict_n_violations(v, &total), 0);
    CHECK_INT(total, 0);
    CHECK(lh_verdict_valid(v));
    /* 1F0 16..26, 1I0 26..36, its gradient 43; 1F1 36..46, 1I1 46..56, its
     * gradient 63; 0I1 63..73, 0W1 73..83. 1W0, 1W1 end at 76. */
    CHECK_INT(lh_verdict_makespan(v), 83);
    CHECK_INT(lh_verdict_peak_memory(v, 0), 2);
    CHECK_INT(lh_verdict_peak_memory(v, 1), 2);
    lh_verdict_free(v);
}

static void accepts_parts_and_b(void)
{
    lh_verdict *v = judge(split, "0F0,0F1,0I0,0W0:0/3,0W0:1/3,0B1,0W0:2/3\n"
                                 "1F0,1B0,1F1,1I1,1W1:0/2,1W1:1/2\n");
    CHECK(lh_verdict_valid(v));
    /* 1B0 26..46, 1F1 46..56, 1I1 56..66, its gradient 73, 0B1 73..93, and the
     * last third of 0W0 (10 in parts of 3, 3 and 4) 93..97. */
    CHECK_INT(lh_verdict_makespan(v), 97);
    lh_verdict_free(v);
    v = judge(joint, "0F0,0B0\n");
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), 6);
    lh_verdict_free(v);
}

static void counts_passes(void)
{
    expect("0F0,0F1,0I0,0W0,0I1\n" ROW1, 1, "device 0: 0W1 is missing");
    expect("0F0,0I0,0W0,0I1,0W1\n" ROW1, 1, "device 0: 0F1 is missing");
    expect("0F0,0F1,0I0,0W0,0W1\n" ROW1, 1, "device 0: 0I1 is missing");
    expect("0F0,0F1,0I0,0W0\n" ROW1, 1, "device 0: 0I1 and 0W1 are missing");
    expect("0F0,0I0,0W0\n" ROW1, 2, "device 0: 0F1 is missing");
    expect(ROW0 "1F0,1I0,1F1,1I1,1W0,1W1,1F0\n", 1,
           "device 1, cell 7: 1F0 again; it is cell 1 of device 1 already");
    expect(ROW0 "1F0,1I0,1F1,1I1,1W0,1W1,1W1\n", 1,
           "device 1, cell 7: 1W1 again; it is cell 6 of device 1 already");
    expect_of(judge(joint, "0F0\n"), 1, "device 0: 0B0 is missing");
    expect("\n" ROW1, 4, "device 0: 0F1 is missing");
}

static void knows_what_there_is(void)
{
    expect(ROW0 "1F0,1I0,1F1,1I1,1W0,1W1,2F0\n", 1,
           "device 1, cell 7: 2F0 is of chunk 2, but there are 2, counted "
           "from 0");
    expect(ROW0 "1F0,1I0,1F1,1I1,1W0,1W1,1F2\n", 1,
           "device 1, cell 7: 1F2 is of microbatch 2, but there are 2, "
           "counted from 0");
    expect("0F0,0F1,0I0,0W0,0I1\n1F0,1I0,1F1,1I1,1W0,1W1,0W1\n", 1,
           "device 1, cell 7: 0W1 belongs on device 0");
    expect(ROW0 ROW1 "\n", 1,
           "the schedule has 3 rows, but the pipeline has 2 devices");
    expect(ROW0, 5, "the schedule has 1 row, but the pipeline has 2 devices");
    expect_of(judge(joint, "0F0,0I0,0W0\n"), 3,
              "device 0, cell 2: 0I0, but this pipeline's backward is joint: "
              "B only");
}

static void refuses_mixtures(void)
{
    expect("0F0,0F1,0I0,0W0,0B1,0W1\n" ROW1, 1,
           "device 0, cell 6: 0W1, but 0B1 does that already");
    expect("0F0,0F1,0I0,0W0,0I1,0W1:0/2\n" ROW1, 1,
           "device 0: 0W1:1/2 is missing");
    expect("0F0,0F1,0I0,0W0,0I1,0W1:1/3\n" ROW1, 2,
           "device 0: 0W1:0/3 is missing");
    expect("0F0,0F1,0I0,0W0,0I1,0W1:0/2,0W1:1/3\n" ROW1, 1,
           "device 0, cell 7: 0W1:1/3, but 0W1:0/2 cuts this W into 2 parts");
    expect("0F0,0F1,0I0,0W0,0I1,0W1:0/3,0W1:2/3,0W1:1/3\n" ROW1, 1,
           "device 0, cell 7: 0W1:2/3 comes before 0W1:1/3 (cell 8), which "
           "it needs");
    expect("0F0,0F1,0I0,0W0,0I1,0W1:0/2,0W1:0/2,0W1:1/2\n" ROW1, 1,
           "device 0, cell 7: 0W1:0/2 again; it is cell 6 of device 0 "
           "already");
}

static void wants_an_order(void)
{
    expect("0F0,0F1,0W0,0I0,0I1,0W1\n" ROW1, 1,
           "device 0, cell 3: 0W0 comes before 0I0 (cell 4), which it needs");
    expect(ROW0 "1I0,1F0,1F1,1I1,1W0,1W1\n", 1,
           "device 1, cell 1: 1I0 comes before 1F0 (cell 2), which it needs");
    static const char one[] =
        "longhaul: pipeline/1\nmicrobatches: 1\ndevices: 1\nbackward: joint\n"
        "uniform: {placement: loop, chunks_per_device: 2, F: 1, D: 1, W: 1}\n";
    expect_of(judge(one, "1F0,0F0,1B0,0B0\n"), 1,
              "device 0, cell 1: 1F0 comes before 0F0 (cell 2), which it "
              "needs");
    expect_of(judge(one, "0F0,1F0,0B0,1B0\n"), 1,
              "device 0, cell 3: 0B0 comes before 1B0 (cell 4), which it "
              "needs");
}

static void finds_circles(void)
{
    expect("0F0,0I0,0F1,0W0,0I1,0W1\n1F0,1F1,1I0,1I1,1W0,1W1\n", 1,
           "deadlock, a cycle of 2: device 0 waits in 0I0 for 1I0 of device "
           "1; device 1 waits in 1F1 for 0F1 of device 0");
    lh_verdict *v =
        judge(split, "0F0,0I0,0F1,0W0,0I1,0W1\n1F0,1F1,1I0,1I1,1W0,1W1\n");
    CHECK_INT(lh_verdict_makespan(v), -1);
    lh_verdict_free(v);
    static const char late[] =
        "longhaul: pipeline/1\nmicrobatches: 2\ndevices: 1\nbackward: joint\n"
        "uniform: {placement: ud, F: 1, D: 1, W: 1}\n"
        "data_parallel:\n"
        "  operations:\n"
        "    - {chunk: 0, all_gather: 5, launch: 0F1, before: 0F0}\n";
    expect_of(judge(late, "0F0,0F1,0B0,0B1\n"), 1,
              "deadlock, a cycle of 1: device 0 waits in 0F0 for data-parallel "
              "communication that 0F1 starts later on the same device");
    v = judge(late, "0F1,0F0,0B0,0B1\n");
    CHECK(lh_verdict_valid(v));
    lh_verdict_free(v);
}

static void weighs_memory(void)
{
    static const char tight[] =
        "longhaul: pipeline/1\nmicrobatches: 2\ndevices: 1\n"
        "chunks: [{device: 0, F: 1, D: 1, W: 1,"
        " memory: {F: 5, D: -1, W: -4, static: 3}}]\nmemory_limit: 12\n";
    expect_of(judge(tight, "0F0,0F1,0I0,0I1,0W0,0W1\n"), 1,
              "device 0 holds 13 in cell 2, 0F1, of 12 allowed");
    lh_verdict *v = judge(tight, "0F0,0I0,0F1,0I1,0W0,0W1\n");
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_peak_memory(v, 0), 12);
    lh_verdict_free(v);
    /* Three quarters of 0W0's 4 are freed before 0F1. */
    v = judge(tight, "0F0,0I0,0W0:0/4,0W0:1/4,0W0:2/4,0F1,0I1,0W0:3/4,0W1\n");
    CHECK_INT(lh_verdict_peak_memory(v, 0), 9);
    lh_verdict_free(v);
    static const char full[] =
        "longhaul: pipeline/1\nmicrobatches: 1\ndevices: 1\n"
        "chunks: [{device: 0, F: 1, D: 1, W: 1,"
        " memory: {F: 0, D: 0, W: 0, static: 3}}]\nmemory_limit: 2\n";
    expect_of(judge(full, "0F0,0B0\n"), 1,
              "device 0 holds 3 before any pass, limit 2");
}

#define F(c, m)                                                                \
    {                                                                          \
        .chunk = c, .microbatch = m, .n_parts = 1, .kind = LH_F                \
    }
#define D(c, m)                                                                \
    {                                                                          \
        .chunk = c, .microbatch = m, .n_parts = 1, .kind = LH_D                \
    }

static void judges_link_orders(void)
{
    const lh_pass right[] = {D(1, 0), D(1, 1)}, swapped[] = {D(1, 1), D(1, 0)};
    const lh_pass twice[] = {D(1, 0), D(1, 1), D(1, 0)};
    const lh_pass other[] = {D(1, 0), F(0, 0), D(0, 1), D(1, 1), D(1, 7)};
    lh_link_order orders[2] = {{"back", 2, right}, {"back", 2, right}};
    lh_verdict *v = judge_with(split, ROW0 ROW1, 1, orders);
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), 83);
    lh_verdict_free(v);
    expect_of(judge_with(split, ROW0 ROW1, 2, orders), 1,
              "link order 2: link back again");
    orders[0].link = "forth";
    expect_of(judge_with(split, ROW0 ROW1, 1, orders), 1,
              "link order 1: no link is named forth");
    orders[0] = (lh_link_order){"back", 1, right};
    expect_of(judge_with(split, ROW0 ROW1, 1, orders), 1,
              "link back: the message of 1I1 is not in its order");
    orders[0] = (lh_link_order){"back", 3, twice};
    expect_of(judge_with(split, ROW0 ROW1, 1, orders), 1,
              "link back, message 3: 1I0 again");
    orders[0] = (lh_link_order){"back", 5, other};
    expect_of(judge_with(split, ROW0 ROW1, 1, orders), 3,
              "link back, message 2: the output of 0F0 does not use this link");
    expect_of(judge_with(split, ROW0 ROW1, 1, orders), 3,
              "link back, message 5: no device runs 1I7");
    /* 1I1 first: 1I0's message waits for it, and 0I0 waits as long. */
    orders[0] = (lh_link_order){"back", 2, swapped};
    v = judge_with(split, "0F0,0F1,0I1,0W1,0I0,0W0\n" ROW1, 1, orders);
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), 103);
    lh_verdict_free(v);
    expect_of(
        judge_with(split, "0F0,0I0,0F1,0I1,0W0,0W1\n" ROW1, 1, orders), 1,
        "deadlock, a cycle of 2: device 0 waits in 0I0 for the message "
        "of 1I0, which link back sends after the message of 1I1 of device 1; "
        "device 1 waits in 1F1 for 0F1 of device 0");
}

/* Two devices send on one link: FIFO; at equal times the lower device is first.
 */
static void shares_links(void)
{
    static const char shared[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 1\ndevices: 4\n"
        "backward: joint\nchunks:\n"
        "  - {device: 1, F: 10, D: 0, W: 0}\n"
        "  - {device: 2, F: 10, D: 0, W: 0}\n"
        "  - {device: 0, F: 10, D: 0, W: 0}\n"
        "  - {device: 3, F: 10, D: 0, W: 0}\n"
        "links:\n"
        "  - {from: 1, to: 2, latency: 1, transfer: 3, name: a}\n"
        "  - {from: 2, to: 0, latency: 1, transfer: 4, name: a}\n";
    /* 0F0 10, 1F0 14..24, 2F0 29..39, 3F0 39..49; all B have duration 0. */
    lh_verdict *v = judge(shared, "2F0,2B0\n0F0,0B0\n1F0,1B0\n3F0,3B0\n");
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), 49);
    lh_verdict_free(v);
}

static void counts_data_parallel(void)
{
    static const char gathered[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 1\ndevices: 1\n"
        "uniform: {placement: loop, chunks_per_device: 2, F: 20, D: 20, W: 20}"
        "\ndata_parallel:\n"
        "  - {chunk: 0, all_gather: 5, reduce_scatter: 7, latency: 1}\n"
        "  - {chunk: 1, all_gather: 30, reduce_scatter: 50, latency: 1}\n";
    lh_verdict *v = judge(gathered, "0F0,1F0,1I0,1W0,0I0,0W0\n");
    CHECK(lh_verdict_valid(v));
    /* Gathered at 6 and 36. 0F0 6..16, 1F0 36..46, 1I0 56, 1W0 66, scattered
     * 66..116; 0I0 76, 0W0 86, scattered 116..123, arrives at 124. */
    CHECK_INT(lh_verdict_makespan(v), 124);
    lh_verdict_free(v);
}

/* Two receives are posted at time 15. Device 0 has produced 0F1, at 3, before
 * 2F1, at 4, so the message of 0F1 enters their link first, although the
 * receive for 2F1 is the first of which the time is known. */
static void sends_in_order_of_production(void)
{
    static const char late[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 2\ndevices: 3\n"
        "backward: joint\nbidirectional: true\nreceives: late\n"
        "chunks:\n"
        "  - {device: 0, F: 1, D: 1, W: 1}\n"
        "  - {device: 1, F: 10, D: 1, W: 1}\n"
        "  - {device: 0, F: 1, D: 1, W: 1}\n"
        "  - {device: 2, F: 12, D: 1, W: 1}\n"
        "links:\n"
        "  - {from: 0, to: 1, latency: 0, transfer: 2, name: wan}\n"
        "  - {from: 0, to: 2, latency: 0, transfer: 2, name: wan}\n";
    lh_verdict *v = judge(late, "2F0,0F0,0F1,2F1,2B0,2B1,0B0,0B1\n"
                                "1F0,1F1,1B0,1B1\n3F0,3F1,3B0,3B1\n");
    CHECK(lh_verdict_valid(v));
    /* The messages of 2F0 1..3, 0F0 3..5, 0F1 15..17, 2F1 17..19. 1F1 17..27;
     * 3F1 19..31, 3B0 31..33, 3B1 33..35; 2B0 33..35, 2B1 ..37, 0B1 39..41. */
    CHECK_INT(lh_verdict_makespan(v), 41);
    lh_verdict_free(v);
}

/* Rows without passes may be missing at the end. Their device holds no
 * activations. */
static void rows_at_the_end_may_be_missing(void)
{
    lh_verdict *v = judge(split, ROW0);
    CHECK(!lh_verdict_valid(v));
    CHECK_INT(lh_verdict_peak_memory(v, 0), 2);
    CHECK_INT(lh_verdict_peak_memory(v, 1), 0);
    lh_verdict_free(v);
}

static void stays_small_for_little(void)
{
    static const char vast[] =
        "longhaul: pipeline/1\nmicrobatches: 65536\ndevices: 1\n"
        "uniform: {placement: loop, chunks_per_device: 1024, F: 1, D: 1, W: 1}"
        "\n";
    lh_verdict *v = judge(vast, "0F0,5F7\n");
    uint64_t total;
    CHECK_INT(lh_verdict_n_violations(v, &total), 100);
    CHECK_INT(total, (UINT64_C(1) << 27) - 2);
    lh_verdict_free(v);
}

/* tests/cli/test_communication_cells.py compares with a brute force. */
static void judges_communication_cells(void)
{
    static const char text[] = "longhaul: pipeline/1\nmicrobatches: 2\n"
                               "devices: 2\nbackward: joint\nuniform: "
                               "{placement: ud, chunks_per_device: 1, F: 1, "
                               "D: 1, W: 1}\n";
    static const char csv[] =
        "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_verdict *v = NULL;
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s", &s, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    expect_of(v, 1,
              "deadlock where sends wait for their receives: device 0 in cell "
              "4 (0SEND_F1) waits for device 1; device 1 in cell 4 (1SEND_B0) "
              "waits for device 0; with 1 buffered message per pair they run");
    CHECK_OK(lh_check_buffered(p, s, 1, &v, &err), err);
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), 9 * INT64_C(1000000000));
    lh_verdict_free(v);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(accepts_a_valid_one);
    RUN(accepts_parts_and_b);
    RUN(counts_passes);
    RUN(knows_what_there_is);
    RUN(refuses_mixtures);
    RUN(wants_an_order);
    RUN(finds_circles);
    RUN(weighs_memory);
    RUN(judges_link_orders);
    RUN(shares_links);
    RUN(counts_data_parallel);
    RUN(sends_in_order_of_production);
    RUN(rows_at_the_end_may_be_missing);
    RUN(stays_small_for_little);
    RUN(judges_communication_cells);
    return test_summary();
}
