/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a rank map (may be empty), a NUL, and a profiler trace, plain or
 * compressed. Any recording that results must be diagnosable. */
#include "fuzz.h"
#include "report/diagnosis/rank_map.h"
#include "report/diagnosis/recording.h"

#include <longhaul/experimental/diagnose.h>

#include <math.h>

static void diagnose(const lh_recording *recording)
{
    lh_diagnosis *d = NULL;
    lh_error err = {0};
    lh_diagnose_options with = {.size = sizeof with, .threads = 1};
    MUST(lh_diagnose(recording, &with, &d, &err), err);
    REQUIRE((d->n_steps > 0 || (d->unreplayed && d->n_ranks > 0)) &&
                isfinite(d->slowdown) && d->t_ns >= 0 && d->measured_ns >= 0,
            "%u steps, %g, %g", d->n_steps, d->slowdown, d->t_ns);
    lh_diagnosis_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data;
    size_t rest_len = size, map_len;
    lh_rank_map *map = NULL;
    lh_recording *recording = NULL;
    lh_error err = {0};
    const char *map_text = fuzz_cut(&rest, &rest_len, &map_len);
    if (map_len) {
        lh_status status =
            lhi_rank_map_parse(map_text, map_len, "ranks.yaml", &map, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, map);
            return 0;
        }
    }
    lh_status status = lhi_recording_parse_mapped(rest, rest_len, "rank0.json",
                                                  map, &recording, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, recording);
    else
        diagnose(recording);
    lh_recording_free(recording);
    lh_rank_map_free(map);
    return 0;
}
