/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the inputs of several commands, and defines their shared
 * performance-model settings. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "cli.h"

#include <longhaul.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/status.h>

/* --- files -------------------------------------------------------------- */

/* An input file and its kind, from the key `longhaul`: "pipeline", "job",
 * "plan", ...; "trace" for Chrome trace events; "" for anything else. `path`
 * "-" is standard input. Standard input and pipes can be read only once, so
 * their text is in *text (release with free(); NULL for files). */
typedef struct cli_input {
    const char *path;
    char kind[LH_KIND_TEXT_SIZE];
    char *text; /* from standard input and pipes */
    size_t len;
} cli_input;

/* Opens an input file or standard input and detects its kind (job, plan,
 * pipeline and others). */
lh_status cli_input_open(cli *c, const char *path, cli_input *out);
/* Frees an input and its text. */
void cli_input_close(cli_input *input);
/* Reads an opened input as a pipeline; *out is the caller's. Errors name the
 * file. */
lh_status cli_input_pipeline(cli *c, const cli_input *input, lh_pipeline **out);
/* Checks whether the file declares a known kind other than `kind`; false for
 * files without kind or with an unknown one, which the parser rejects. */
bool cli_input_is_other(const cli_input *input, const char *kind);
/* Fails because the input has another kind; `wants` names the accepted kinds:
 * "a pipeline or a plan". */
lh_status cli_reject_input(cli *c, const cli_input *input, const char *wants);

/* Checks whether a scheduling method called `name` exists. */
bool cli_is_method(const char *name);
/* Rejects an unknown method name, the value of `option`, as a usage error, with
 * the most similar name. */
lh_status cli_check_method(cli *c, const char *option, const char *name);

/* Methods that split weight-gradient passes. */
#define CLI_SPLITTING_METHODS "greedy look-ahead auto optimal"
/* Checks whether the space-separated `words` contain the word. */
bool cli_has_word(const char *words, const char *word);
/* Rejects --sub-blocks (parts per W pass, `sub_blocks`) where it has no effect:
 * for an existing schedule (`method` NULL) or a method that does not split
 * passes. */
lh_status cli_check_sub_blocks(cli *c, const char *method, uint32_t sub_blocks);

/* --- performance model -------------------------------------------------- */

enum { CLI_MAKESPAN, CLI_FIRST_DEVICE };

/* Performance model settings. */
typedef struct cli_model {
    uint32_t receives, coupled, objective;
    bool fifo;
    const bool *delegated; /* per link; NULL: all or none */
    int64_t host_copy_ns;
} cli_model;

extern const char *const cli_receives[], *const cli_objectives[];

/* Option rows; `settings` has members with the same names. */
#define CLI_SCHEDULE_ROW(settings)                                             \
    {                                                                          \
        .name = "schedule", .letter = 's', .type = CLI_TEXT,                   \
        .at = offsetof(settings, schedule), .arg = "S.csv|PLAN|METHOD",        \
        .example_argument = "zb-h1",                                           \
        .help = "Schedule to use: a CSV file, a plan whose schedule to "       \
                "take, or a scheduling method (see Methods below). "           \
                "Default: the method auto for a pipeline, the plan's own "     \
                "schedule for a plan.",                                        \
        .words = CLI_WORDS_METHODS_OR_FILES                                    \
    }

#define CLI_SUB_BLOCKS_ROW(settings, says)                                     \
    {                                                                          \
        .name = "sub-blocks", .type = CLI_COUNT,                               \
        .at = offsetof(settings, sub_blocks), .arg = "N", .preset = "1",       \
        .least = 1, .most = LH_MAX_PARTS, .help = says                         \
    }
/* Help text of --sub-blocks, for all commands with this option. */
#define CLI_SUB_BLOCKS "greedy: split every weight-gradient pass into N parts."

#define CLI_BUFFERS_ROW(settings)                                              \
    {                                                                          \
        .name = "buffers", .type = CLI_COUNT,                                  \
        .at = offsetof(settings, buffers), .arg = "N", .least = 1,             \
        .most = 1000000,                                                       \
        .help = "Maximum number of receives that a rank has posted at a "      \
                "time, each with a buffer. Default: as many as the "           \
                "predicted message times require."                             \
    }

#define CLI_THREADS_ROW(settings, says)                                        \
    {                                                                          \
        .name = "threads", .letter = 'j', .type = CLI_COUNT,                   \
        .at = offsetof(settings, threads), .arg = "N", .least = 1,             \
        .most = 256, .help = says                                              \
    }

/* Row for an output file with help text `says`. */
#define CLI_OUTPUT_ROW(settings, option, says)                                 \
    {                                                                          \
        .name = #option, .type = CLI_OUTPUT, .at = offsetof(settings, option), \
        .arg = "FILE", .help = says, .words = CLI_WORDS_FILES                  \
    }

/* Option rows; `settings` has a cli_model named `model`. */
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
        .help = "Send messages first in, first out; ignore the message "       \
                "order in the schedule."                                       \
    }
#define CLI_COUPLED_ROW(settings)                                              \
    {                                                                          \
        .name = "coupled", .type = CLI_COUNT,                                  \
        .at = offsetof(settings, model.coupled), .arg = "N", .least = 1,       \
        .most = 1000000,                                                       \
        .help = "Head-of-line blocking: a device's sends share a queue of "    \
                "N messages, and a full queue blocks the device's next "       \
                "pass. Default: sends never block."                            \
    }
#define CLI_MODEL_ROWS(settings)                                               \
    CLI_RECEIVES_ROW(                                                          \
        settings,                                                              \
        "When to post receives, and so when a rendezvous transfer may "        \
        "start: ahead of need (early), when the receiver reaches the pass "    \
        "(late), or late but never delayed by weight-gradient "                \
        "passes (late-fd); or as in the pipeline or the plan (pipeline)."),    \
        CLI_COUPLED_ROW(settings), CLI_FIFO_ROW(settings)

#define CLI_HOST_MEMORY_ROW(settings, says)                                    \
    {                                                                          \
        .name = "host-memory", .type = CLI_TEXT,                               \
        .at = offsetof(settings, host_memory), .arg = "AMOUNT|all",            \
        .example_argument = "all",                                             \
        .help = "Keep up to AMOUNT of each device's activations in host "      \
                "memory, in the unit of the pipeline's limits (bytes also "    \
                "as 64GiB), or all that exceed the limit. " says               \
    }

#define CLI_HOST_COPY_ROW(settings)                                            \
    {                                                                          \
        .name = "host-copy", .type = CLI_TIME,                                 \
        .at = offsetof(settings, model.host_copy_ns), .arg = "TIME",           \
        .example_argument = "1ms",                                             \
        .help = "With --host-memory: time to copy one forward's activations "  \
                "to or from host memory. Lengthens the forward and the "       \
                "backward of these activations (default: 0)."                  \
    }

#define CLI_OBJECTIVE_ROW(settings)                                            \
    {                                                                          \
        .name = "objective", .type = CLI_CHOICE,                               \
        .at = offsetof(settings, model.objective), .arg = "WHAT",              \
        .preset = "makespan", .choices = cli_objectives,                       \
        .help = "Time to report and, if schedules are compared, to minimise: " \
                "the end of the last pass or communication on any device "     \
                "(makespan), or of the last pass on the first chunk's device " \
                "(first-device)."                                              \
    }

/* Returns the simulator options that the command-line settings in `model`
 * describe. */
lh_sim_options cli_sim_options(const cli_model *model);
/* Returns the name of the receive mode (when receives are posted), such as
 * "late": the options' mode or else the pipeline's. */
const char *cli_receives_of(const cli_model *model,
                            const lh_pipeline *pipeline);
/* Sets *receives to the receive mode (when receives are posted) from the
 * options in `model`, early if none was given. *own: whether the options gave
 * one. */
void cli_set_receives(const cli_model *model, lh_receives *receives, bool *own);
/* Returns the objective's value (makespan or first device's end) for a
 * timeline, in ns. */
int64_t cli_objective_ns(const cli_model *model, const lh_timeline *timeline);

/* --- numbers ------------------------------------------------------------ */

/* Returns ns as a JSON number in seconds. */
json_t *cli_seconds(int64_t ns);
/* Formats "312.000 ms", in a suitable unit. */
#define CLI_TIME_TEXT 32
/* Formats a time into `buffer` (CLI_TIME_TEXT bytes) and returns it. */
char *cli_time_text(int64_t ns, char *buffer);
/* Formats "12.5 GiB" or "31.0 MiB" if the unit is bytes, else number and unit.
 */
#define CLI_MEMORY_TEXT 64
/* Formats an amount of memory in `unit`, the pipeline's, into `buffer`
 * (CLI_MEMORY_TEXT bytes) and returns it. */
char *cli_memory_text(int64_t amount, const char *unit, char *buffer);
/* Formats "289,423". */
#define CLI_GROUPED_TEXT 64
/* Formats a number with thousands separators into `buffer` (CLI_GROUPED_TEXT
 * bytes), which it returns. */
char *cli_grouped_text(double number, char *buffer);
/* Returns the highest peak memory among the devices, in the pipeline's unit;
 * *device (may be NULL) receives that device. */
int64_t cli_highest_peak(const lh_timeline *timeline, uint32_t *device);
/* Returns the monotonic clock's time, in seconds. */
double cli_monotonic_seconds(void);

#endif
