/* SPDX-License-Identifier: Apache-2.0 */
/* Input: S.csv, optionally followed by a NUL and S.links.csv. Schedules for up
 * to three devices run on small pipelines with the same number of devices. */
#include "fuzz.h"
#include "run_schedule.h"
#include "schedule/pipeline/file/pipe_file.h"

#include <longhaul/experimental/schedule.h>

static lh_schedule *read_twice(const char *rows, size_t rows_len,
                               const char *links, size_t links_len)
{
    lh_schedule *first = NULL, *second = NULL;
    lh_error err = {0};
    lh_status status = lhi_schedule_parse_both(rows, rows_len, links, links_len,
                                               "s.csv", &first, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, first);
        return NULL;
    }
    char *a = NULL, *b = NULL, *c = NULL, *d = NULL;
    size_t a_len = 0, b_len = 0, c_len = 0, d_len = 0;
    MUST(lh_schedule_format(first, &a, &a_len, &err), err);
    MUST(lhi_schedule_format_links(first, &b, &b_len, &err), err);
    status =
        lhi_schedule_parse_both(a, a_len, b, b_len, "again.csv", &second, &err);
    REQUIRE(status == LH_OK, "%s\n%s\n%s", err.text, a, b ? b : "");
    MUST(lh_schedule_format(second, &c, &c_len, &err), err);
    MUST(lhi_schedule_format_links(second, &d, &d_len, &err), err);
    REQUIRE(a_len == c_len && memcmp(a, c, a_len) == 0, "%s\n%s", a, c);
    REQUIRE(b_len == d_len && (!b || memcmp(b, d, b_len) == 0), "%s\n%s",
            b ? b : "", d ? d : "");
    lh_text_free(a);
    lh_text_free(b);
    lh_text_free(c);
    lh_text_free(d);
    lh_schedule_free(second);
    return first;
}

/* Builds a pipeline for up to three devices. The split variant has two chunks
 * per device and memory limits; links with the same name are shared. */
static lh_pipeline *pipeline_for(uint32_t devices, bool joint)
{
    lh_chunk chunks[6];
    lh_link links[4] = {
        {.from = 0, .to = 1, .latency_ns = 3, .transfer_ns = 1, .name = "a"},
        {.from = 1, .to = 0, .latency_ns = 2, .transfer_ns = 2, .name = "b"},
        {.from = 1, .to = 2, .latency_ns = 0, .transfer_ns = 1, .name = "a"},
        {.from = 2, .to = 1, .latency_ns = 1, .transfer_ns = 0, .name = "b"},
    };
    int64_t limits[3] = {5, 4, 4};
    for (uint32_t c = 0; c < 2 * devices; c++)
        chunks[c] = (lh_chunk){
            .device = c < devices ? c : 2 * devices - 1 - c,
            .f_ns = 2 + c,
            .d_ns = 3,
            .w_ns = c % 3,
            .mem_f = 1,
            .mem_w = -1,
            .all_gather_ns = c % 2 * 4,
            .reduce_scatter_ns = c % 2 * 7,
        };
    lh_pipeline_desc desc = {
        .size = sizeof desc,
        .n_devices = devices,
        .n_microbatches = 3,
        .joint = joint,
        .n_chunks = joint ? devices : 2 * devices,
        .chunks = chunks,
        .n_links = devices == 3   ? 4
                   : devices == 2 ? 2
                                  : 0,
        .links = links,
        .memory_limits = joint ? NULL : limits,
    };
    lh_pipeline *p = NULL;
    lh_error err = {0};
    MUST(lh_pipeline_make(&desc, &p, &err), err);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data;
    size_t rest_len = size, rows_len;
    const char *rows = fuzz_cut(&rest, &rest_len, &rows_len);
    bool has_links = rows_len < size;
    lh_schedule *s =
        read_twice(rows, rows_len, has_links ? rest : NULL, rest_len);
    if (!s)
        return 0;
    uint32_t devices = lh_schedule_n_devices(s);
    for (int joint = 0; devices <= 3 && joint < 2; joint++) {
        lh_pipeline *p = pipeline_for(devices, joint);
        fuzz_run(p, s);
        lh_pipeline_free(p);
    }
    lh_schedule_free(s);
    return 0;
}
