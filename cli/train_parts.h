/* SPDX-License-Identifier: Apache-2.0 */
/* The train command's parts: cmd_train.c has what can be asked for, train_run.c
 * runs it, train_output.c says what came out. */
#ifndef CLI_TRAIN_PARTS_H
#define CLI_TRAIN_PARTS_H

#include "view.h"

#include <longhaul/engine.h>

enum { TRAIN_INPROC, TRAIN_LOCAL, TRAIN_UCX }; /* --transport */
enum { TRAIN_RANKS_ANY, TRAIN_RANKS_LOCAL };   /* --ranks */

extern const char *const train_devices[], *const train_transports[];

typedef struct train_settings {
    const char *schedule, *inject, *trace, *html, *log, *profile_out;
    uint32_t device, transport, ranks, steps, sub_blocks, buffers,
        message_bytes, speed;
    bool realtime, emulate_links, real_links, insecure;
    cli_model model;
    const char *data, *tokenizer, *checkpoint, *resume, *weights;
    uint64_t warmup;
    double rate, min_rate, weight_decay, clip, validation;
    uint32_t format, checkpoint_every, keep, validate_every;
} train_settings;

lh_status train_run(cli *c);

/* Of one iteration, as --log and --json have it. */
double train_tokens_per_s(const lh_iteration *it);
json_t *train_iteration_json(const lh_iteration *it);

/* --log, open for the length of a run. */
typedef struct train_log {
    int fd;
    const char *path;
    bool *failed; /* of all processes: the first rank, which writes, may be
                     another one. NULL: there is no log */
    void (*old_pipe)(int); /* what SIGPIPE did before */
} train_log;

lh_status train_log_open(cli *c, const char *path, train_log *out);
/* What cannot be written is said once, and then no more is tried. */
void train_log_add(train_log *log, const lh_iteration *it);
/* False: not all of it was written, which has been said. */
bool train_log_close(train_log *log);

/* Writes and prints what was asked for; nothing where another process does.
 * `plan`: NULL of a pipeline. */
lh_status train_put_results(cli *c, const cli_view *v, const lh_plan *plan,
                            const lh_train_result *r);

#endif
