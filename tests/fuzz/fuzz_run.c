/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a pipeline, a NUL, S.csv, and optionally another NUL and S.links.csv.
 */
#include "fuzz.h"
#include "run_schedule.h"
#include "schedule/pipeline/file/pipe_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data;
    size_t rest_len = size, text_len, rows_len;
    const char *text = fuzz_cut(&rest, &rest_len, &text_len);
    const char *rows = fuzz_cut(&rest, &rest_len, &rows_len);
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_error err = {0};
    lh_status status = lh_pipeline_parse(text, text_len, "p.yaml", &p, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, p);
        return 0;
    }
    status = lhi_schedule_parse_both(rows, rows_len, rest_len ? rest : NULL,
                                     rest_len, "s.csv", &s, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, s);
    else if (fuzz_is_small(p))
        fuzz_run(p, s);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return 0;
}
