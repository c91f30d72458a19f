/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the options common to all commands and looks up options in tables. */
#include "cli.h"

#include <longhaul.h>
#include <longhaul/experimental/job.h>
#include <longhaul/experimental/solve.h>

#include <string.h>

const cli_option cli_common_options[] = {
    {.name = "json",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, json),
     .help = "Print one JSON object only."},
    {.name = "output",
     .letter = 'o',
     .type = CLI_OUTPUT,
     .at = offsetof(cli_common, output),
     .arg = "FILE",
     .help = "Write the results to FILE instead of printing them.",
     .words = CLI_WORDS_FILES},
    {.name = "quiet",
     .letter = 'q',
     .type = CLI_FLAG,
     .at = offsetof(cli_common, quiet),
     .help = "Print results and errors; no progress and no notes."},
    {.name = "seed",
     .type = CLI_SEED,
     .at = offsetof(cli_common, seed),
     .arg = "N",
     .preset = "0",
     .help = "Seed of random numbers: schedule search, samples, initial "
             "weights, simulated networks. No effect on commands without "
             "random numbers."},
    {.name = "help",
     .letter = 'h',
     .type = CLI_FLAG,
     .at = offsetof(cli_common, help),
     .help = "Print the help with the common options."},
    {.name = "help-all",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, help_all),
     .help = "Print the help with all options."},
    {.name = "version",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, version),
     .help = "Print the version."},
};
const uint32_t cli_n_common_options =
    sizeof cli_common_options / sizeof *cli_common_options;

/* Finds the option called `name` (`len` bytes) among the `count` options; NULL:
 * none. */
static const cli_option *find_in(const cli_option *options, uint32_t count,
                                 const char *name, size_t len)
{
    for (uint32_t i = 0; i < count; i++)
        if (strlen(options[i].name) == len &&
            strncmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

const cli_option *cli_find_long(const cli_command *command, const char *name,
                                size_t len)
{
    const cli_option *o =
        find_in(command->options, command->n_options, name, len);
    return o ? o : find_in(cli_common_options, cli_n_common_options, name, len);
}

const cli_option *cli_find_option(const cli_command *command, const char *name)
{
    return cli_find_long(command, name, strlen(name));
}

const cli_option *cli_find_letter(const cli_command *command, char letter)
{
    for (uint32_t i = 0; i < command->n_options; i++)
        if (command->options[i].letter == letter)
            return &command->options[i];
    for (uint32_t i = 0; i < cli_n_common_options; i++)
        if (cli_common_options[i].letter == letter)
            return &cli_common_options[i];
    return NULL;
}

const char *cli_choice_word(const cli_option *option, uint32_t i)
{
    return option->choices ? option->choices[i] : option->choice_name(i);
}

bool cli_accepts_words(const cli_command *k, cli_words words)
{
    for (uint32_t i = 0; i < k->n_options; i++)
        if (k->options[i].words == words ||
            (k->options[i].words == CLI_WORDS_METHODS_OR_FILES &&
             words == CLI_WORDS_METHODS))
            return true;
    return false;
}

/* Returns the i-th name in a list that ends with NULL; NULL: no more. */
static const char *get_name(const char *const *names, uint32_t i)
{
    for (uint32_t k = 0; k < i && *names; k++)
        names++;
    return *names;
}

const char *cli_word(cli_words words, uint32_t i)
{
    switch (words) {
    case CLI_WORDS_METHODS:
    case CLI_WORDS_METHODS_OR_FILES:
        return i < lh_n_schedulers() ? lh_scheduler_name(i) : NULL;
    case CLI_WORDS_ENGINES:
        return i < lh_n_solve_engines() ? lh_solve_engine_name(i) : NULL;
    case CLI_WORDS_MODELS:
        return get_name(lh_model_presets(), i);
    case CLI_WORDS_GPUS:
        return get_name(lh_gpu_presets(), i);
    case CLI_WORDS_NONE:
    case CLI_WORDS_FILES:
    case CLI_WORDS_FOLDERS:
    case CLI_WORDS_COMMANDS:
    case CLI_N_WORDS:
        break;
    }
    return NULL;
}

const char *cli_word_about(cli_words words, uint32_t i,
                           char text[CLI_ABOUT_TEXT])
{
    if (words == CLI_WORDS_ENGINES)
        return lh_solve_engine_about(i);
    if (words == CLI_WORDS_MODELS) {
        const lh_model *m = lh_model_preset(cli_word(words, i));
        snprintf(text, CLI_ABOUT_TEXT, "%u layers, %.2f billion parameters%s",
                 m->layers, (double)lh_model_params(m) / 1e9,
                 m->experts ? ", with experts" : "");
        return text;
    }
    if (words == CLI_WORDS_GPUS) {
        const lh_gpu *g = lh_gpu_preset(cli_word(words, i));
        snprintf(text, CLI_ABOUT_TEXT, "%g TFLOP/s in 16 bits, %g GiB",
                 g->tflops, g->memory_gib);
        return text;
    }
    return lh_scheduler_about(i);
}

const char *cli_words_title(cli_words words)
{
    switch (words) {
    case CLI_WORDS_METHODS:
        return "Methods";
    case CLI_WORDS_ENGINES:
        return "Engines of the method optimal";
    case CLI_WORDS_MODELS:
        return "Models";
    case CLI_WORDS_GPUS:
        return "GPUs";
    case CLI_WORDS_NONE:
    case CLI_WORDS_FILES:
    case CLI_WORDS_FOLDERS:
    case CLI_WORDS_METHODS_OR_FILES:
    case CLI_WORDS_COMMANDS:
    case CLI_N_WORDS:
        break;
    }
    return NULL;
}
