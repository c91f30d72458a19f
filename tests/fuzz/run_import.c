/* SPDX-License-Identifier: Apache-2.0 */
#include "run_import.h"

#include "fuzz.h"

void run_import(lh_import_source source, const uint8_t *data, size_t size,
                const lh_model *model, const char *schedule)
{
    static const lh_draft_site sites[] = {{.gpu = "h100-sxm", .nodes = 2},
                                          {.gpu = "h200", .nodes = 2}};
    /* Uses two datacenters if the first byte is a space, otherwise one. */
    const lh_draft_options machines = {.size = sizeof machines,
                                       .n_sites =
                                           size && data[0] == ' ' ? 2 : 1,
                                       .sites = sites,
                                       .sequence = 4096};
    const lh_import_options how = {.size = sizeof how,
                                   .machines = &machines,
                                   .model = model,
                                   .schedule = schedule};
    lh_import *in = NULL;
    lh_job *job = NULL;
    lh_error err = {0};
    lh_status status = lh_import_parse(source, (const char *)data, size, "args",
                                       &how, &in, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, in);
        return;
    }
    MUST(lh_job_parse(in->job, in->job_len, "job", NULL, &job, &err), err);
    REQUIRE(job->n_datacenters == machines.n_sites, "%u sites",
            job->n_datacenters);
    for (uint32_t i = 0; i < in->n_notes; i++)
        REQUIRE(in->notes[i][0] != '\0', "note %u is empty", i);
    for (uint32_t i = 0; i < in->n_ignored; i++)
        REQUIRE(in->ignored[i][0] != '\0', "name %u is empty", i);
    lh_job_free(job);
    lh_import_free(in);
}
