/* SPDX-License-Identifier: Apache-2.0 */
#include "measurement_files.h"

#include <longhaul/experimental/job.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/profile.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the index of the pipeline replica with the longest total pass time,
 * which the exported measurements describe. */
static uint32_t find_slowest_replica(const lh_recording *recording)
{
    uint32_t slowest = 0;
    for (uint32_t i = 1; i < lh_recording_n_replicas(recording); i++)
        if (lh_recording_passes_ns(recording, i) >
            lh_recording_passes_ns(recording, slowest))
            slowest = i;
    return slowest;
}

/* Writes the measured pipeline as a file to `path`. */
static lh_status write_pipeline(cli *c, const lh_pipeline *p, const char *path)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_pipeline_format(p, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

/* --- profile ------------------------------------------------------------ */

/* Fails unless the job fixes the settings on which the pipeline's pass
 * durations depend: tensor, context, expert and pipeline degree, chunks per
 * device, and one microbatch size. */
static lh_status check_job(cli *c, const lh_job *job, const lh_pipeline *p)
{
    const lh_layout *l = &job->layout;
    const struct {
        const char *key;
        uint32_t value;
    } needed[] = {{"tensor", l->tensor},
                  {"context", l->context},
                  {"expert", l->expert},
                  {"pipeline", l->pipeline},
                  {"chunks_per_device", l->chunks_per_device},
                  {"micro_batch", l->micro_batch}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].value == 0)
            return cli_error(c, LH_EINPUT,
                             "%s: layout.%s is required to identify the "
                             "measured layout; set the value of the recorded "
                             "job",
                             job->name, needed[i].key);
    if (l->group_micro_batches)
        return cli_error(c, LH_EUNSUPPORTED,
                         "%s: a profile cannot record unequal microbatches; "
                         "record a job with one micro_batch",
                         job->name);
    if (l->site_tensors)
        return cli_error(c, LH_EUNSUPPORTED,
                         "%s: a profile cannot record different tensor "
                         "degrees; record a job with one tensor",
                         job->name);
    if ((uint64_t)l->pipeline * l->chunks_per_device != lh_pipeline_n_chunks(p))
        return cli_error(c, LH_EINPUT,
                         "%s: its layout has %" PRIu32 " x %" PRIu32
                         " chunks (pipeline x chunks_per_device), the "
                         "recording has %" PRIu32
                         "; set the values of the recorded job",
                         job->name, l->pipeline, l->chunks_per_device,
                         lh_pipeline_n_chunks(p));
    return LH_OK;
}

/* Fills in entries[chunk], one measured profile entry per chunk, with the job's
 * layout and the pipeline's F, D and W times; memory is not measured. */
static void fill_entries(const lh_job *job, const lh_pipeline *p,
                         lh_profile_entry *entries)
{
    const lh_layout *l = &job->layout;
    uint32_t n = lh_pipeline_n_chunks(p);
    for (uint32_t i = 0; i < n; i++) {
        const lh_chunk *chunk = lh_pipeline_chunk(p, i);
        entries[i] = (lh_profile_entry){
            .kind = LH_PROFILE_CHUNK,
            .tensor = l->tensor,
            .context = l->context,
            .expert = l->expert,
            .micro_batch = l->micro_batch,
            .sequence = job->training.sequence,
            .recompute = (uint32_t)job->training.recompute,
            .no_sequence_parallel =
                l->tensor > 1 && job->framework.no_sequence_parallel,
            .chunk = i,
            .n_chunks = n,
            .layers = l->n_chunk_layers == n ? l->chunk_layers[i] : 0,
            .communication = true,
            .f_ns = chunk->f_ns,
            .d_ns = chunk->d_ns,
            .w_ns = chunk->w_ns,
            .activation_bytes = LH_NOT_MEASURED,
            .static_bytes = LH_NOT_MEASURED};
    }
}

/* Formats a profile (measured times for the planner) from the pipeline's pass
 * times, for the job's layout; *text is the caller's. passes_ns: total pass
 * time in an iteration. */
static lh_status format_profile(cli *c, const lh_job *job,
                                const lh_diagnosis *d, int64_t passes_ns,
                                const lh_pipeline *p, char **text, size_t *len)
{
    char source[160];
    uint32_t n = lh_pipeline_n_chunks(p);
    int64_t rest_ns = (int64_t)d->measured_ns - passes_ns;
    lh_profile_entry *entries = calloc(n, sizeof *entries);
    if (!entries)
        return cli_no_memory(c);
    fill_entries(job, p, entries);
    snprintf(source, sizeof source,
             "a recording of the running job, means over %" PRIu32
             " steps of the replica whose passes took longest",
             d->n_steps);
    const lh_profile profile = {.name = "",
                                .model = job->model->name,
                                .source = source,
                                .n_entries = n,
                                .entries = entries,
                                .iteration_ns = rest_ns > 0 ? rest_ns : 0};
    lh_status status = lh_profile_format(&profile, text, len, &c->err);
    free(entries);
    return status;
}

/* Writes a profile with the measured times to the --profile-out file; fails if
 * the job does not fit the recording. passes_ns: total pass time in an
 * iteration. */
static lh_status write_profile(cli *c, const cli_measurement_files *files,
                               const lh_diagnosis *d, int64_t passes_ns,
                               const lh_pipeline *p)
{
    lh_job *job = NULL;
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_job_read(files->job, &job, &c->err));
    lh_status status = check_job(c, job, p);
    if (status == LH_OK)
        status = format_profile(c, job, d, passes_ns, p, &text, &len);
    lh_job_free(job);
    CLI_TRY(status);
    return cli_write_text(c, files->profile, text, len);
}

lh_status cli_write_measurements(cli *c, const cli_measurement_files *files,
                                 const lh_recording *recording,
                                 const lh_diagnosis *diagnosis)
{
    lh_pipeline *p = NULL;
    uint32_t replica = find_slowest_replica(recording);
    if (!files->pipeline && !files->profile)
        return LH_OK;
    if (diagnosis->n_steps == 0)
        return cli_error(c, LH_EINPUT, "%s requires replayed steps: %s",
                         files->pipeline ? "--pipeline-out" : "--profile-out",
                         diagnosis->unreplayed);
    CLI_TRY(lh_recording_linked_pipeline(recording, replica, &p, &c->err));
    lh_status status = LH_OK;
    if (files->pipeline)
        status = write_pipeline(c, p, files->pipeline);
    if (status == LH_OK && files->profile)
        status = write_profile(c, files, diagnosis,
                               lh_recording_passes_ns(recording, replica), p);
    lh_pipeline_free(p);
    return status;
}
