/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines and schedules, read and written. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "schedule/pipeline/accessors.h"
#include "test.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/status.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static lh_pipeline *parse(const char *text)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p.yaml", &p, &err), err);
    return p;
}

#define HEAD "longhaul: pipeline/1\nmicrobatches: 3\ndevices: 2\n"
#define CHUNKS                                                                 \
    "chunks:\n"                                                                \
    " - {device: 0, F: 1, D: 2, W: 3}\n"                                       \
    " - {device: 1, F: 1.5, D: 2, W: 3, memory: {F: 7, W: -7, static: 9}}\n"

static void units_are_exact(void)
{
    lh_pipeline *p = parse(HEAD CHUNKS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->f_ns, 1500000000);
    CHECK_INT(lh_pipeline_chunk(p, 1)->mem_w, -7);
    CHECK_INT(lh_pipeline_chunk(p, 1)->mem_static, 9);
    CHECK_INT(lh_pipeline_memory_limit(p, 0), LH_NO_LIMIT);
    CHECK_STR(lh_pipeline_memory_unit(p), "");
    lh_pipeline_free(p);
    p = parse(HEAD "time_unit: ms\nuniform: {F: 0.1, D: 1e-6, W: 2e3}\n");
    CHECK_INT(lh_pipeline_chunk(p, 0)->f_ns, 100000);
    CHECK_INT(lh_pipeline_chunk(p, 0)->d_ns, 1);
    CHECK_INT(lh_pipeline_chunk(p, 0)->w_ns, 2000000000);
    lh_pipeline_free(p);
}

static void shorthands_expand(void)
{
    lh_pipeline *p = parse("longhaul: pipeline/1\ntime_unit: ms\n"
                           "microbatches: 4\ndevices: 4\n"
                           "uniform: {placement: wave, F: 10, D: 20, W: 30}\n"
                           "datacenters: {count: 2, latency: 5, transfer: 1}\n"
                           "memory_limit: 8\n");
    static const uint32_t devices[] = {0, 1, 2, 3, 3, 2, 1, 0};
    CHECK_INT(lh_pipeline_n_chunks(p), 8);
    for (uint32_t c = 0; c < 8; c++) {
        CHECK_INT(lh_pipeline_chunk(p, c)->device, devices[c]);
        CHECK_INT(lh_pipeline_chunk(p, c)->f_ns, 5000000);
    }
    CHECK_INT(lhi_pipeline_placement(p), LH_PLACEMENT_WAVE);
    CHECK_INT(lh_pipeline_n_links(p), 2);
    CHECK_INT(lh_pipeline_link(p, 0)->from, 1);
    CHECK_INT(lh_pipeline_link(p, 0)->to, 2);
    CHECK_STR(lh_pipeline_link(p, 0)->name, "dc0>dc1");
    CHECK_INT(lh_pipeline_memory_limit(p, 3), 8);
    CHECK_INT(lh_pipeline_device_site(p, 2), 1);
    lh_pipeline_free(p);
    /* Loop: the wrap-around shares the link between the groups. */
    p = parse("longhaul: pipeline/1\nmicrobatches: 4\ndevices: 4\n"
              "uniform: {placement: loop, chunks_per_device: 3, F: 3, D: 3, "
              "W: 3}\ndatacenters: {count: 2, latency: 5}\n");
    CHECK_INT(lh_pipeline_n_chunks(p), 12);
    CHECK_INT(lhi_pipeline_placement(p), LH_PLACEMENT_LOOP);
    CHECK_INT(lh_pipeline_n_links(p), 4);
    CHECK_STR(lh_pipeline_link(p, 0)->name, "dc0>dc1");
    CHECK_INT(lh_pipeline_link(p, 2)->from, 3);
    CHECK_INT(lh_pipeline_link(p, 2)->to, 0);
    CHECK_STR(lh_pipeline_link(p, 2)->name, "dc1>dc0");
    lh_pipeline_free(p);
}

static void round_trip(const char *text)
{
    lh_pipeline *p = parse(text), *again;
    char *a = NULL, *b = NULL;
    lh_error err;
    CHECK_OK(lh_pipeline_format(p, &a, NULL, &err), err);
    again = parse(a);
    CHECK_OK(lh_pipeline_format(again, &b, NULL, &err), err);
    CHECK_STR(b, a);
    lh_text_free(a);
    lh_text_free(b);
    lh_pipeline_free(again);
    lh_pipeline_free(p);
}

/* Parses the ```yaml blocks of the format's page. */
static void documentation_is_right(void)
{
    FILE *file = fopen(TEST_DATA "/../../docs/formats/pipeline.md", "r");
    static char page[1 << 16];
    CHECK(file != NULL);
    if (!file)
        return;
    size_t len = fread(page, 1, sizeof page - 1, file);
    fclose(file);
    page[len] = '\0';
    int n = 0;
    for (char *at = page; (at = strstr(at, "```yaml\n")); n++) {
        at += strlen("```yaml\n");
        char *end = strstr(at, "```");
        *end = '\0';
        round_trip(at);
        at = end + 3;
    }
    CHECK_INT(n, 6);
}

static void everything_reads_back(void)
{
    round_trip(HEAD CHUNKS);
    round_trip(HEAD CHUNKS "backward: joint\n"
                           "links:\n"
                           " - {from: 0, to: 1, latency: 1, name: \"a b\"}\n"
                           " - {from: 1, to: 0, transfer: 0.25}\n"
                           "sites:\n"
                           " - {name: x, devices: [1]}\n"
                           " - {name: \"\\\"y\\\" \\u00e9\", devices: [0]}\n"
                           "memory_limit: [9, 10]\n"
                           "memory_unit: bytes\n"
                           "data_parallel:\n"
                           " - {chunk: 1, all_gather: 1, latency: 1}\n");
    round_trip(HEAD CHUNKS "data_parallel: {prefetch: 0}\n");
    round_trip(HEAD CHUNKS "data_parallel:\n"
                           " - {chunk: 0, all_gather: 1, link: fabric of x}\n"
                           " - {chunk: 1, latency: 1}\n");
    round_trip(HEAD CHUNKS "data_parallel:\n"
                           "  chunks: [{chunk: 1, link: \"a>b + b>a\"}]\n"
                           "  operations:\n"
                           "   - {chunk: 1, all_gather: 2, launch: 1F0}\n");
    round_trip(HEAD CHUNKS "data_parallel:\n"
                           "  operations:\n"
                           "   - {chunk: 1, all_gather: 2, kind: AGF, "
                           "share: 0.84375, launch: 1F0}\n"
                           "   - {chunk: 1, all_gather: 2, kind: AGB, "
                           "share: 1, launch: 1B0}\n"
                           "   - {chunk: 1, reduce_scatter: 2, kind: RSO, "
                           "launch: 1B0}\n");
    round_trip(HEAD CHUNKS "data_parallel:\n"
                           "  chunks: [{chunk: 1, all_gather: 1}]\n"
                           "  prefetch: 2\n");
}

/* A device without data-parallel communication has no such link, so no name for
 * it. */
static void names_of_links_follow_communication(void)
{
    static const char *const names[] = {"x", "y"}, *const odd[] = {"x", "y "};
    lh_chunk chunks[] = {{.device = 0, .f_ns = 1},
                         {.device = 1, .f_ns = 1, .reduce_scatter_ns = 2}};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 2,
                             .n_microbatches = 1,
                             .n_chunks = 2,
                             .chunks = chunks,
                             .dp_links = names};
    lh_pipeline_desc back = {.size = sizeof back};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    CHECK(lh_pipeline_dp_link(p, 0) == NULL);
    CHECK_STR(lh_pipeline_dp_link(p, 1), "y");
    CHECK_OK(lh_pipeline_describe(p, &back, &err), err);
    CHECK_STR(back.dp_links[1], "y");
    lh_pipeline_free(p);
    desc.dp_links = odd;
    CHECK_INT(lh_pipeline_make(&desc, &p, &err), LH_EINPUT);
    CHECK_HAS(err.text, "device 1's link");
    chunks[1].reduce_scatter_ns = 0;
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    CHECK(lh_pipeline_dp_link(p, 1) == NULL);
    CHECK_OK(lh_pipeline_describe(p, &back, &err), err);
    CHECK(back.dp_links == NULL);
    lh_pipeline_free(p);
}

static void refuses(const char *text, const char *why)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_INT(lh_pipeline_parse(text, strlen(text), "p.yaml", &p, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, why);
    lh_pipeline_free(p);
}

static void refusals_name_line_and_key(void)
{
    refuses("", "p.yaml:1: the file is empty");
    refuses("longhaul: pipeline/2\n", "p.yaml:1: longhaul: must be pipeline/1");
    refuses(HEAD "chunk: []\n", "p.yaml:4: chunk: unknown key; did you mean "
                                "'chunks'?");
    refuses(HEAD, "give 'chunks' or 'uniform'");
    static const char *const odd[][2] = {
        {"all_gather: 1, kind: RSG, launch: 0B0",
         "p.yaml:7: data_parallel.operations[0]: RSG is a reduce_scatter, not "
         "an all_gather"},
        {"reduce_scatter: 1, kind: AGO, launch: 0F0",
         "AGO is an all_gather, not a reduce_scatter"},
        {"all_gather: 1, kind: AGB, launch: 0F0",
         "AGB is launched by a backward pass, not by a forward one"},
        {"reduce_scatter: 1, kind: RSO, launch: 0F0",
         "RSO is launched by a backward pass"},
        {"all_gather: 1, kind: AGX, launch: 0F0", "kind: "},
        {"all_gather: 1, kind: AGF, share: 0, launch: 0F0",
         "the share must be above 0 and at most 1, not 0"},
        {"all_gather: 1, kind: AGF, share: 1.5, launch: 0F0", "share: "},
        {"all_gather: 1, share: 0.5, launch: 0F0", "share: requires 'kind'"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 HEAD CHUNKS "data_parallel: {operations: [{chunk: 0, %s}]}\n",
                 odd[i][0]);
        refuses(text, odd[i][1]);
    }
    /* Limits follow the pipeline's size, not the format's range. */
    refuses(HEAD CHUNKS "sites: [{name: x, devices: [0, -1]}]\n",
            "devices[1]: -1 is out of range; from 0 to 1 is possible");
    refuses(HEAD CHUNKS "sites: [{name: x, devices: [0, 70000]}]\n",
            "devices[1]: 70000 is out of range; from 0 to 1 is possible");
    refuses(HEAD CHUNKS "data_parallel: [{chunk: -1, all_gather: 1}]\n",
            "chunk: -1 is out of range; from 0 to 1 is possible");
    refuses(HEAD CHUNKS "data_parallel: [{chunk: 70000, all_gather: 1}]\n",
            "chunk: 70000 is out of range; from 0 to 1 is possible");
    refuses(HEAD CHUNKS "uniform: {F: 1, D: 1, W: 1}\n",
            "p.yaml:7: uniform: 'chunks' and 'uniform' cannot be combined");
    refuses(HEAD "chunks:\n - {device: 2, F: 1, D: 1, W: 1}\n",
            "p.yaml:5: chunks[0]: device 2 does not exist; there are 2");
    refuses(HEAD "chunks:\n - {device: 0, F: -1, D: 1, W: 1}\n",
            "p.yaml:5: chunks[0].F: -1 is out of range");
    refuses(HEAD "chunks:\n - {device: 0, F: .nan, D: 1, W: 1}\n",
            "must be a number, not '.nan'");
    refuses(HEAD "chunks:\n - {device: 0, F: 1e999, D: 1, W: 1}\n",
            "too large");
    refuses(HEAD "chunks:\n - {device: 0, F: 1, D: 1}\n",
            "p.yaml:5: chunks[0]: key 'W' is missing");
    refuses(HEAD "chunks:\n - {device: 0, F: 1, D: 1, W: 1, memory: "
                 "{F: 0.5}}\n",
            "chunks[0].memory.F: must be a whole number");
    refuses("longhaul: pipeline/1\nmicrobatches: 1000000000\ndevices: 1\n",
            "microbatches: 1000000000 is out of range; from 1 to 1048576");
    refuses("longhaul: pipeline/1\nmicrobatches: 1000000\ndevices: 1000\n"
            "uniform: {F: 1, D: 1, W: 1}\n",
            "1000 chunks times 1000000 microbatches");
    refuses("longhaul: pipeline/1\nmicrobatches: 1000000\ndevices: 1\n"
            "uniform: {F: 4e6, D: 1, W: 1}\n",
            "add up to more than 2^53 ns (104 days)");
    refuses("longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 2\ndevices: 1\n"
            "uniform: {F: 4503599627370496, D: 1, W: 0}\n",
            "add up to more than 2^53 ns (104 days)");
    refuses(HEAD CHUNKS "links:\n - {from: 0, to: 0}\n",
            "p.yaml:8: links[0]: a link from device 0 to itself");
    refuses(HEAD CHUNKS "links:\n - {from: 0, to: 1}\n - {from: 0, to: 1}\n",
            "p.yaml:9: links[1]: a second link from device 0 to device 1");
    refuses(HEAD CHUNKS "links:\n - {from: 0, to: 5}\n",
            "p.yaml:8: links[0]: device 5 does not exist");
    refuses(
        HEAD CHUNKS "datacenters: {count: 3}\n",
        "datacenters.count: 2 devices cannot be divided into 3 equal groups");
    refuses(HEAD CHUNKS "memory_limit: [1]\n",
            "memory_limit: 1 limits for 2 devices");
    refuses(HEAD CHUNKS "sites:\n - {name: a, devices: [0]}\n",
            "1 of 2 devices have no site");
    refuses(HEAD CHUNKS "data_parallel: {prefetch: -1}\n",
            "data_parallel.prefetch: -1 is out of range");
    refuses(HEAD CHUNKS "data_parallel:\n - {chunk: 1, latency: 2, link: x}\n",
            "data_parallel[0].link: has no effect");
    refuses(HEAD CHUNKS
            "data_parallel:\n - {chunk: 1, all_gather: 2, link: \"x,y\"}\n",
            "data_parallel[0].link: must not hold commas");
    refuses(HEAD "chunks: [{device: 0, F: 1, D: 1, W: 1},"
                 " {device: 0, F: 1, D: 1, W: 1}]\n"
                 "data_parallel:\n"
                 " - {chunk: 0, all_gather: 2, link: x}\n"
                 " - {chunk: 1, all_gather: 2, link: y}\n",
            "data_parallel[1].link: another chunk of device 0 uses 'x'");
    refuses(HEAD CHUNKS
            "data_parallel:\n - {chunk: 1, all_gather: 2, links: x}\n",
            "links");
    refuses(HEAD CHUNKS "data_parallel:\n - {chunk: 7}\n",
            "data_parallel[0].chunk: 7 is out of range");
    refuses(HEAD "uniform: {placement: wave, chunks_per_device: 3, F: 1, D: 1, "
                 "W: 1}\n",
            "chunks_per_device is 3, but placement wave requires 2");
}

/* --- schedules ------------------------------------------------------------ */

static lh_schedule *schedule(const char *csv)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s.csv", &s, &err), err);
    return s;
}

static void schedules_read_back(void)
{
    static const char csv[] = "0F0,3F12,0I0,0W0:0/2,1B4,0W0:1/2\n\n7F0\n";
    lh_schedule *s = schedule(csv);
    lh_error err;
    char *text = NULL;
    CHECK_INT(lh_schedule_n_devices(s), 3);
    uint32_t n;
    const lh_pass *passes = lh_schedule_order(s, 0, &n);
    CHECK_INT(n, 6);
    CHECK_INT(passes[1].chunk, 3);
    CHECK_INT(passes[1].microbatch, 12);
    CHECK_INT(passes[2].kind, LH_D);
    CHECK_INT(passes[5].part, 1);
    CHECK_INT(passes[5].n_parts, 2);
    lh_schedule_order(s, 1, &n);
    CHECK_INT(n, 0);
    CHECK_OK(lh_schedule_format(s, &text, NULL, &err), err);
    CHECK_STR(text, csv);
    lh_text_free(text);
    lh_schedule_free(s);
}

static void pytorch_cells_are_taken(void)
{
    lh_schedule *s = schedule("0F0,,0SEND_F0,(0F1;1B0)OVERLAP_F_B,0UNSHARD\r\n"
                              " 2RECV_B3 , 0W0\n");
    uint32_t n;
    const lh_pass *passes = lh_schedule_order(s, 0, &n);
    CHECK_INT(n, 3);
    CHECK_INT(passes[2].kind, LH_B);
    CHECK_INT(lh_schedule_n_comms(s), 3);
    const lh_comm *comms = lh_schedule_comms(s, 0, &n);
    char text[LH_PASS_TEXT_SIZE];
    CHECK_INT(n, 2);
    CHECK_STR(lh_comm_format(&comms[0], text), "0SEND_F0");
    CHECK_INT(comms[0].cell, 3);
    CHECK_INT(comms[0].n_before, 1);
    CHECK_STR(lh_comm_format(&comms[1], text), "0UNSHARD");
    CHECK_INT(comms[1].n_before, 3);
    lh_schedule_free(s);
}

static void refuses_csv(const char *csv, const char *why)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_INT(lh_schedule_parse(csv, strlen(csv), "s.csv", &s, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, why);
    lh_schedule_free(s);
}

static void bad_cells_are_named(void)
{
    refuses_csv("", "s.csv:1: 0 rows");
    refuses_csv("0F0\n0F0,0X1\n", "s.csv:2: cell 2: '0X1': must be");
    refuses_csv("0F\n", "cell 1: '0F'");
    refuses_csv("F0\n", "cell 1: 'F0'");
    refuses_csv("0F99999999999\n", "cell 1");
    refuses_csv("0F0:0/2\n", "only a W can be split");
    refuses_csv("0W0:2/2\n", "only a W can be split");
    refuses_csv("0W0:0/5000\n", "cell 1");
    refuses_csv("0F0x\n", "cell 1: '0F0x'");
    refuses_csv("(0F0;1B0)OVERLAP\n", "OVERLAP_F_B");
    refuses_csv("(0F0;1B0\n", "OVERLAP_F_B");
}

static void link_orders_stand_beside(void)
{
    char folder[] = "/tmp/longhaul-test-XXXXXX", path[64], links[64];
    lh_schedule *s = schedule("0F0\n"), *with = NULL, *read = NULL;
    lh_error err = {0};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/s.csv", folder);
    snprintf(links, sizeof links, "%s/s.links.csv", folder);
    uint32_t count;
    const lh_pass *order = lh_schedule_order(s, 0, &count);
    lh_link_order order_of_link = {"west-east", 1, order};
    CHECK_OK(
        lh_schedule_make(1, &order, &count, 1, &order_of_link, &with, &err),
        err);
    CHECK_OK(lh_schedule_write(with, path, &err), err);
    CHECK_OK(lh_schedule_read(path, false, &read, &err), err);
    CHECK_INT(lh_schedule_n_link_orders(read), 1);
    CHECK_STR(lh_schedule_link_order(read, 0)->link, "west-east");
    CHECK_INT(lh_schedule_link_order(read, 0)->n_passes, 1);
    lh_schedule_free(read);
    read = NULL;
    CHECK_OK(lh_schedule_read(path, true, &read, &err), err);
    CHECK_INT(lh_schedule_n_link_orders(read), 0);
    /* Writing without orders removes the old file. */
    CHECK_OK(lh_schedule_write(s, path, &err), err);
    CHECK(access(links, F_OK) != 0);
    lh_schedule_free(read);
    lh_schedule_free(with);
    lh_schedule_free(s);
    unlink(path);
    rmdir(folder);
}

static void check_hosted(const char *limits, int64_t host_memory,
                         const int64_t *want, lh_status status,
                         const char *part)
{
    char text[512];
    lh_pipeline *p = NULL, *hosted = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\nmicrobatches: 4\ndevices: 2\n"
             "uniform: {placement: wave, F: 1, D: 1, W: 1, memory: {F: 2, D: "
             "1, W: -3, static: 1}}\n%s",
             limits);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_INT(lh_pipeline_with_host(p, host_memory, &hosted, &err), status);
    if (status != LH_OK)
        CHECK_HAS(err.text, part);
    for (uint32_t d = 0; hosted && d < 2; d++)
        CHECK_INT(lh_pipeline_memory_limit(hosted, d), want[d]);
    lh_pipeline_free(hosted);
    lh_pipeline_free(p);
}

/* Two chunks on each device use 1 permanently, and a forward takes 2. */
static void host_memory_raises_limits(void)
{
    static const int64_t raised[] = {7, 14},
                         none[] = {LH_NO_LIMIT, LH_NO_LIMIT};
    check_hosted("memory_limit: [4, 11]", 3, raised, LH_OK, "");
    check_hosted("memory_limit: [4, 11]", LH_NO_LIMIT, none, LH_OK, "");
    check_hosted("memory_limit: [4, 11]", LH_NO_LIMIT - 1, none, LH_OK, "");
    check_hosted("memory_limit: [4, 3]", 100, NULL, LH_EINFEASIBLE,
                 "device 1 needs memory 4, its limit is 3");
    check_hosted("memory_limit: 4", 0, NULL, LH_EINVAL, "must be above 0");
    check_hosted("", 1, NULL, LH_EINVAL, "has no memory_limit");
}

static void check_injected(const char *link, lh_status status, const char *part,
                           int64_t there, int64_t back)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 2\ndevices: 3\n"
        "uniform: {placement: ud, F: 1, D: 1, W: 1}\n"
        "links:\n  - {from: 1, to: 2, name: a>b, latency: 3, transfer: 1}\n"
        "  - {from: 2, to: 1, name: b>a, latency: 3, transfer: 1}\n";
    lh_pipeline *p = NULL, *other = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, sizeof text - 1, "p", &p, &err), err);
    CHECK_INT(lh_pipeline_set_link_delay(p, link, 7, -1, &other, &err), status);
    if (status != LH_OK)
        CHECK_HAS(err.text, part);
    for (uint32_t l = 0; other && l < lh_pipeline_n_links(other); l++) {
        const lh_link *is = lh_pipeline_link(other, l);
        const bool onward = is->from < is->to;
        if (strstr(is->name, ">"))
            CHECK_INT(is->latency_ns, onward ? there : back);
        else
            CHECK_INT(is->latency_ns, 7);
        CHECK_INT(is->transfer_ns, strstr(is->name, ">") ? 1 : 0);
    }
    lh_pipeline_free(other);
    lh_pipeline_free(p);
}

/* Unnamed links between devices are added; the transfer is unchanged. */
static void delays_are_injected_by_name(void)
{
    check_injected("a>b", LH_OK, "", 7, 3);
    check_injected("a-b", LH_OK, "", 7, 7);
    check_injected("b>a", LH_OK, "", 3, 7);
    check_injected("0-1", LH_OK, "", 3, 3);
    check_injected("1>2", LH_EINPUT, "use the link 'a>b'", 0, 0);
    check_injected("0-2", LH_EINPUT, "no messages are sent between", 0, 0);
    check_injected("0-3", LH_EINPUT, "neither a link of the pipeline: a>b, b>a",
                   0, 0);
    check_injected("", LH_EINPUT, "neither a link of the pipeline", 0, 0);
}

static void put(const char *path, const char *text)
{
    lh_error err;
    CHECK_OK(lh_file_write(path, text, strlen(text), &err), err);
}

static void has_text(const char *path, const char *text)
{
    char got[64] = "";
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    if (!file)
        return;
    size_t n = fread(got, 1, sizeof got - 1, file);
    got[n] = '\0';
    fclose(file);
    CHECK_STR(got, text);
}

/* Symbolic links are kept, and their target is written. */
static void links_stay_links(void)
{
    char folder[] = "/tmp/longhaul-test-XXXXXX", file[64], link[64];
    struct stat info;
    lh_error err;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    put(file, "old\n");
    CHECK(chmod(file, 0600) == 0 && symlink("file", link) == 0);
    put(link, "new\n");
    has_text(file, "new\n");
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(stat(file, &info) == 0 && (info.st_mode & 0777) == 0600);
    unlink(file); /* dangling now: the file is created */
    put(link, "again\n");
    has_text(file, "again\n");
    unlink(link);
    CHECK(symlink("/dev/null", link) == 0);
    put(link, "gone\n");
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    unlink(link);
    CHECK(symlink(folder, link) == 0);
    CHECK_INT(lh_file_write(link, "x", 1, &err), LH_EIO);
    CHECK_HAS(err.text, "is a directory");
    CHECK_INT(lh_file_writable(link, &err), LH_EIO);
    CHECK_HAS(err.text, "is a directory");
    unlink(link);
    /* The check changes and creates nothing. */
    put(file, "stays\n");
    CHECK_OK(lh_file_writable(file, &err), err);
    has_text(file, "stays\n");
    unlink(file);
    CHECK_OK(lh_file_writable(file, &err), err);
    CHECK(lstat(file, &info) != 0);
    CHECK_OK(lh_file_writable("/dev/null", &err), err);
    snprintf(link, sizeof link, "%s/none/here", folder);
    CHECK_INT(lh_file_writable(link, &err), LH_EIO);
    CHECK_HAS(err.text, "cannot write: No such file");
    /* An open file by descriptor number, possibly another owner's. */
    FILE *open_file = fopen(file, "w");
    snprintf(link, sizeof link, "/dev/fd/%d", fileno(open_file));
    put(link, "through\n");
    fclose(open_file);
    has_text(file, "through\n");
    unlink(file);
    CHECK(rmdir(folder) == 0);
}

static void weight_gradients_become_whole(void)
{
    lh_pipeline *p = parse("longhaul: pipeline/1\nmicrobatches: 1\ndevices: 1\n"
                           "uniform: {F: 1, D: 1, W: 4}\n");
    lh_schedule *s = schedule("0F0,0I0,0W0:0/4,0W0:1/4,0W0:2/4,0W0:3/4\n");
    lh_schedule *w = NULL;
    lh_error err;
    char *text = NULL;
    CHECK_OK(lh_schedule_merge_parts(p, s, &w, &err), err);
    CHECK_OK(lh_schedule_format(w, &text, NULL, &err), err);
    CHECK_STR(text, "0F0,0I0,0W0\n");
    lh_text_free(text);
    lh_schedule_free(w);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    /* Among the parts it would delay the only other F: the W is placed at its
     * last part. */
    p = parse("longhaul: pipeline/1\nmicrobatches: 2\ndevices: 2\n"
              "chunks:\n - {device: 0, F: 1, D: 1, W: 4}\n"
              " - {device: 1, F: 1, D: 1, W: 4}\n");
    s = schedule("0F0,0F1,0I0,0W0,0I1,0W1\n"
                 "1F0,1I0,1W0:0/2,1F1,1I1,1W0:1/2,1W1\n");
    CHECK_OK(lh_schedule_merge_parts(p, s, &w, &err), err);
    CHECK_OK(lh_schedule_format(w, &text, NULL, &err), err);
    CHECK_STR(text, "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
    lh_text_free(text);
    lh_schedule_free(w);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(units_are_exact);
    RUN(shorthands_expand);
    RUN(documentation_is_right);
    RUN(everything_reads_back);
    RUN(names_of_links_follow_communication);
    RUN(refusals_name_line_and_key);
    RUN(schedules_read_back);
    RUN(pytorch_cells_are_taken);
    RUN(bad_cells_are_named);
    RUN(link_orders_stand_beside);
    RUN(host_memory_raises_limits);
    RUN(delays_are_injected_by_name);
    RUN(links_stay_links);
    RUN(weight_gradients_become_whole);
    return test_summary();
}
