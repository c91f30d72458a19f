/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a line with changes to a small pipeline, a NUL, and a pipeline in the
 * number format. Each must yield either a pipeline or an error with a message.
 */
#include "fuzz.h"

#include "report/whatif/whatif.h"
#include "schedule/pipeline/file/serialize.h"

#include <string.h>

static const char small[] =
    "longhaul: pipeline/1\nmicrobatches: 2\ndevices: 2\nbackward: split\n"
    "uniform: {placement: ud, chunks_per_device: 1, F: 1, D: 1, W: 1}\n"
    "datacenters: {count: 2, latency: 1, transfer: 0.5}\nmemory_limit: 9\n";

static void change(const char *line)
{
    lh_pipeline *p = NULL;
    lhi_whatif_pipeline changed = {0};
    lh_error err = {0};
    const lh_sim_options sim = {.size = sizeof sim};
    MUST(lh_pipeline_parse(small, strlen(small), "small", &p, &err), err);
    lh_status status = lhi_whatif_apply_changes(p, &sim, line, &changed, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, changed.pipeline);
    lhi_whatif_pipeline_fini(&changed);
    lh_pipeline_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char line[4096];
    const uint8_t *end = memchr(data, 0, size);
    size_t len = end ? (size_t)(end - data) : size;
    if (len >= sizeof line)
        return 0;
    memcpy(line, data, len);
    line[len] = '\0';
    change(line);
    if (end) {
        lh_pipeline *p = NULL;
        lh_error err = {0};
        lh_status status = lhi_pipeline_deserialize((const char *)end + 1,
                                                    size - len - 1, &p, &err);
        if (status != LH_OK)
            fuzz_refused(status, &err, p);
        lh_pipeline_free(p);
    }
    return 0;
}
