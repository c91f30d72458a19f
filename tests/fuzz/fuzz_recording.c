/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a recording. Any recording that parses must be diagnosable, and the
 * diagnosis must contain finite numbers only. */
#include "fuzz.h"
#include "report/diagnosis/recording.h"

#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/json_output.h>

#include <math.h>

static void diagnose(const lh_recording *recording)
{
    lh_diagnosis *d = NULL;
    lh_error err = {0};
    lh_diagnose_options with = {.size = sizeof with, .threads = 1};
    char *text = NULL;
    MUST(lh_diagnose(recording, &with, &d, &err), err);
    REQUIRE(d->n_steps == lh_recording_n_steps(recording), "%u steps",
            d->n_steps);
    REQUIRE(isfinite(d->slowdown) && isfinite(d->worker_share) &&
                isfinite(d->last_stage_share),
            "%g %g %g", d->slowdown, d->worker_share, d->last_stage_share);
    MUST(lh_diagnosis_format(d, &text, NULL, &err), err);
    lh_text_free(text);
    lh_diagnosis_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_recording *recording = NULL;
    lh_error err = {0};
    lh_status status = lhi_recording_parse((const char *)data, size,
                                           "recording.csv", &recording, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, recording);
    else
        diagnose(recording);
    lh_recording_free(recording);
    return 0;
}
