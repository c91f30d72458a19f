/* SPDX-License-Identifier: Apache-2.0 */
/* What several commands read, and the settings of the performance model that
 * they share. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "cli.h"

#include <longhaul/best.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>

/* --- files -----------------------------------------------------------------
 */

/* The kind that a file says it is in its key `longhaul`: "pipeline", "job",
 * "plan", ...; "trace" for Chrome trace events; "" for anything else. `path`
 * "-" is standard input. Of that, and of pipes, which are read but once, the
 * text stays in *text for the reader (release with free(); NULL for files). */
typedef struct cli_input {
    const char *path;
    char kind[LH_KIND_TEXT];
    char *text; /* of standard input and of pipes */
    size_t len;
} cli_input;

lh_status cli_input_open(cli *c, const char *path, cli_input *out);
void cli_input_close(cli_input *input);
lh_status cli_input_pipeline(cli *c, const cli_input *input, lh_pipeline **out);
/* The file says that it is something else than `kind`. What says nothing, or
 * something unknown, is for the reader to refuse. */
bool cli_input_is_other(const cli_input *input, const char *kind);
/* `wants` says what the command can work on: "a pipeline or a plan". */
lh_status cli_input_refuse(cli *c, const cli_input *input, const char *wants);

bool cli_is_method(const char *name);
/* Refuses a name as wrong usage, with the nearest that there is. */
lh_status cli_check_method(cli *c, const char *option, const char *name);

/* Methods that cut weight-gradient passes. */
#define CLI_CUTTERS "greedy look-ahead auto optimal"
/* Whether `words`, with spaces between them, have that word. */
bool cli_is_among(const char *words, const char *word);
/* Refuses a --sub-blocks that would be of no effect: of a schedule that is
 * there (`method` NULL) or by a method that leaves passes whole. */
lh_status cli_check_sub_blocks(cli *c, const char *method, uint32_t sub_blocks);

/* --- the performance model ---------------------------------------------------
 */

enum { CLI_MAKESPAN, CLI_FIRST_DEVICE };

typedef struct cli_model {
    uint32_t receives, coupled, objective;
    bool fifo;
    const bool *delegated; /* per link; NULL: none apart from others */
    int64_t host_copy_ns;
} cli_model;

extern const char *const cli_receives[], *const cli_objectives[];

/* Rows of an option table; `settings` has what they store under their name. */
#define CLI_SCHEDULE_ROW(settings)                                             \
    {                                                                          \
        .name = "schedule", .letter = 's', .type = CLI_TEXT,                   \
        .at = offsetof(settings, schedule), .arg = "S.csv|PLAN|METHOD",        \
        .like = "zb-h1",                                                       \
        .help = "The schedule: a CSV file, that of a plan, or a method that "  \
                "makes one; see Methods below. Without it: auto for a "        \
                "pipeline, its own for "                                       \
                "a plan.",                                                     \
        .words = CLI_WORDS_METHODS_OR_FILES                                    \
    }

#define CLI_SUB_BLOCKS_ROW(settings, says)                                     \
    {                                                                          \
        .name = "sub-blocks", .type = CLI_COUNT,                               \
        .at = offsetof(settings, sub_blocks), .arg = "N", .preset = "1",       \
        .least = 1, .most = LH_MAX_PARTS, .help = says                         \
    }
#define CLI_SUB_BLOCKS "greedy: cut every weight-gradient pass into N parts."

#define CLI_BUFFERS_ROW(settings)                                              \
    {                                                                          \
        .name = "buffers", .type = CLI_COUNT,                                  \
        .at = offsetof(settings, buffers), .arg = "N", .least = 1,             \
        .most = 1000000,                                                       \
        .help = "Receives that a rank may have posted at once. Without this "  \
                "option: as many as the prediction needs."                     \
    }

#define CLI_THREADS_ROW(settings, says)                                        \
    {                                                                          \
        .name = "threads", .letter = 'j', .type = CLI_COUNT,                   \
        .at = offsetof(settings, threads), .arg = "N", .least = 1,             \
        .most = 256, .help = says                                              \
    }

/* A file to write, said by `says`. */
#define CLI_OUTPUT_ROW(settings, option, says)                                 \
    {                                                                          \
        .name = #option, .type = CLI_OUTPUT, .at = offsetof(settings, option), \
        .arg = "FILE", .help = says, .words = CLI_WORDS_FILES                  \
    }

/* Rows of an option table; `settings` has a cli_model called `model`. */
#define CLI_RECEIVES_ROW(settings, says)                                       \
    {                                                                          \
        .name = "receives", .type = CLI_CHOICE,                                \
        .at = offsetof(settings, model.receives), .arg = "WHEN",               \
        .preset = "pipeline", .choices = cli_receives, .help = says            \
    }
#define CLI_FIFO_ROW(settings)                                                 \
    {                                                                          \
        .name = "fifo", .type = CLI_FLAG,                                      \
        .at = offsetof(settings, model.fifo),                                  \
        .help = "Messages leave first in, first out, whatever order the "      \
                "schedule gives."                                              \
    }
#define CLI_COUPLED_ROW(settings)                                              \
    {                                                                          \
        .name = "coupled", .type = CLI_COUNT,                                  \
        .at = offsetof(settings, model.coupled), .arg = "N", .least = 1,       \
        .most = 1000000,                                                       \
        .help = "Head-of-line blocking: a device's sends share a queue of N "  \
                "messages, and a full queue stops its next pass. Without "     \
                "this option sends never block."                               \
    }
#define CLI_MODEL_ROWS(settings)                                               \
    CLI_RECEIVES_ROW(                                                          \
        settings,                                                              \
        "When receives are posted, and so when a rendezvous transfer may "     \
        "start: ahead of need (early), once the receiver gets to the pass in " \
        "need (late), or the same but never delayed by weight-gradient "       \
        "passes (late-fd); or as the pipeline or the plan says (pipeline)."),  \
        CLI_COUPLED_ROW(settings), CLI_FIFO_ROW(settings)

#define CLI_HOST_MEMORY_ROW(settings, says)                                    \
    {                                                                          \
        .name = "host-memory", .type = CLI_TEXT,                               \
        .at = offsetof(settings, host_memory), .arg = "AMOUNT|all",            \
        .like = "all",                                                         \
        .help = "Each device may leave so much of its activations in host "    \
                "memory, in the unit of the pipeline's limits (of bytes also " \
                "as 64GiB), or all that does not fit: " says                   \
    }

#define CLI_OBJECTIVE_ROW(settings)                                            \
    {                                                                          \
        .name = "objective", .type = CLI_CHOICE,                               \
        .at = offsetof(settings, model.objective), .arg = "WHAT",              \
        .preset = "makespan", .choices = cli_objectives,                       \
        .help = "What counts: the end of the last pass or communication "      \
                "anywhere, or of the last pass on the first chunk's device."   \
    }

lh_sim_options cli_sim_options(const cli_model *model);
/* What receives are under these options: "late". */
const char *cli_receives_of(const cli_model *model,
                            const lh_pipeline *pipeline);
/* Into the options of a simulation or a run. */
void cli_set_receives(const cli_model *model, lh_receives *receives, bool *own);
int64_t cli_objective_ns(const cli_model *model, const lh_timeline *timeline);

/* --- numbers -----------------------------------------------------------------
 */

json_t *cli_seconds(int64_t ns);
/* "312.000 ms", in the unit that suits. */
#define CLI_TIME_TEXT 32
char *cli_time_text(int64_t ns, char *buffer);
/* "12.5 GiB" or "31.0 MiB" where the unit is bytes, else number and unit. */
#define CLI_MEMORY_TEXT 64
char *cli_memory_text(int64_t amount, const char *unit, char *buffer);
/* "289,423" */
#define CLI_GROUPED_TEXT 64
char *cli_grouped_text(double number, char *buffer);
/* The highest peak and (may be NULL) its device. */
int64_t cli_highest_peak(const lh_timeline *timeline, uint32_t *device);
double cli_now(void); /* seconds of a clock that only goes forward */

#endif
