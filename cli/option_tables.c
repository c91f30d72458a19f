/* SPDX-License-Identifier: Apache-2.0 */
/* The options that every command has, and questions to tables of options. */
#include "cli.h"

#include <string.h>

const cli_option cli_common_options[] = {
    {.name = "json",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, json),
     .help = "Print one JSON object and nothing else."},
    {.name = "output",
     .letter = 'o',
     .type = CLI_OUTPUT,
     .at = offsetof(cli_common, output),
     .arg = "FILE",
     .help = "Write there what would be printed.",
     .words = CLI_WORDS_FILES},
    {.name = "quiet",
     .letter = 'q',
     .type = CLI_FLAG,
     .at = offsetof(cli_common, quiet),
     .help = "No progress and no remarks; errors only."},
    {.name = "seed",
     .type = CLI_SEED,
     .at = offsetof(cli_common, seed),
     .arg = "N",
     .preset = "0",
     .help = "Seed of searches that draw random numbers: the same seed gives "
             "the same result."},
    {.name = "help",
     .letter = 'h',
     .type = CLI_FLAG,
     .at = offsetof(cli_common, help),
     .help = "Print this help."},
    {.name = "version",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, version),
     .help = "Print the version."},
};
const uint32_t cli_n_common_options =
    sizeof cli_common_options / sizeof *cli_common_options;

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

const char *cli_choice(const cli_option *option, uint32_t i)
{
    return option->choices ? option->choices[i] : option->choice_name(i);
}

bool cli_names_engines(const cli_command *k)
{
    for (uint32_t i = 0; i < k->n_options; i++)
        if (k->options[i].words == CLI_WORDS_ENGINES)
            return true;
    return false;
}

bool cli_names_methods(const cli_command *k)
{
    for (uint32_t i = 0; i < k->n_options; i++)
        if (k->options[i].words == CLI_WORDS_METHODS ||
            k->options[i].words == CLI_WORDS_METHODS_OR_FILES)
            return true;
    return false;
}
