/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the program. Commands and their options are tables; parsing,
 * --help, the man pages and the shells' completion are all made from them.
 *
 * What a command prints is gathered in memory and written at the very end, so
 * that a command that fails leaves standard output empty. */
#ifndef CLI_H
#define CLI_H

#include <longhaul/status.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

/* What an option stores at its place in the settings. */
typedef enum cli_type {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char *, NULL where not given */
    CLI_OUTPUT,   /* the same: a file to write, so that where none can be made
                     the command does not begin */
    CLI_APPENDED, /* the same: a file to add to */
    CLI_COUNT,    /* uint32_t, least..most */
    CLI_WHOLE,    /* uint64_t, least..most (0: 2^62); 0 where not given */
    CLI_SEED,     /* uint64_t, any */
    CLI_REAL,     /* double, `low` or more; 0 where not given */
    CLI_ABOVE,    /* double above `low`; 0 where not given */
    CLI_TIME,     /* int64_t, ns; typed with its unit and above 0, 0 where not
                     given */
    CLI_CHOICE,   /* uint32_t, which of the choices */
} cli_type;

/* What a shell should complete an argument with. */
typedef enum cli_words {
    CLI_WORDS_NONE,
    CLI_WORDS_FILES,
    CLI_WORDS_FOLDERS,
    CLI_WORDS_METHODS,
    CLI_WORDS_METHODS_OR_FILES,
    CLI_WORDS_COMMANDS,
    CLI_WORDS_ENGINES, /* of the search for optimal schedules */
    CLI_WORDS_MODELS,  /* or files */
    CLI_WORDS_GPUS,
    CLI_N_WORDS
} cli_words;

typedef struct cli_option {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    cli_type type;
    size_t at;          /* offset into the settings */
    const char *arg;    /* what help calls the argument; NULL: a flag */
    const char *preset; /* parsed as if given first; NULL: none */
    const char *help;
    const char *like;     /* an argument that works, where it has a unit or a
                             form; NULL: any of its kind does */
    uint32_t least, most; /* CLI_COUNT, CLI_WHOLE */
    double low, high;     /* CLI_REAL, CLI_ABOVE; high 0: no limit */
    /* CLI_CHOICE: the words, ending with NULL, or what gives the i-th of
     * them, NULL after the last. */
    const char *const *choices;
    const char *(*choice_name)(uint32_t i);
    cli_words words;
    /* CLI_TEXT: given again it is a list, with this between; 0: the last one
     * counts. */
    char adds_up;
} cli_option;

typedef struct cli_example {
    const char *line; /* what to type */
    const char *does;
} cli_example;

/* Settings of every command. */
typedef struct cli_common {
    bool json, quiet, help, version;
    const char *output;
    uint64_t seed;
} cli_common;

typedef struct cli cli;

typedef struct cli_command {
    const char *name;
    const char *operands; /* for help, e.g. "PIPELINE S.csv"; NULL: none */
    uint32_t least_operands, most_operands;
    cli_words operand_words;
    const char *about;          /* one line, no full stop */
    const char *description;    /* paragraphs, an empty line between them */
    const char *output_help;    /* what -o does */
    bool own_output;            /* the command itself deals with -o */
    const char *default_output; /* the file that it writes without -o, if not
                                   with --json, of which `default_mark` is in
                                   the first 4 KiB; NULL: none */
    const char *default_mark;
    bool default_with_json; /* with --json, too */
    bool writes_links;      /* beside -o FILE: FILE.links.csv */
    bool on_many_hosts;     /* which need not all have the files' folders:
                               the command itself calls cli_check_outputs() */
    const cli_option *options;
    uint32_t n_options;
    const cli_example *examples;
    uint32_t n_examples;
    size_t settings_size;
    /* LH_OK, or cli->err says why not. Sets cli->exit_code where the answer is
     * "no" without an error. */
    lh_status (*run)(cli *c);
} cli_command;

#define CLI_COUNT_OF(table) ((uint32_t)(sizeof(table) / sizeof(*(table))))
#define CLI_OPTIONS(table) .options = (table), .n_options = CLI_COUNT_OF(table)
#define CLI_EXAMPLES(table)                                                    \
    .examples = (table), .n_examples = CLI_COUNT_OF(table)

struct cli {
    const cli_command *command;
    cli_common common;
    void *settings;
    uint32_t n_operands;
    char **operands;
    uint64_t given; /* see cli_given() */
    FILE *out;      /* in memory until the command has succeeded */
    int exit_code;
    bool usage;   /* the error is one of usage */
    bool is_said; /* the error has been printed, by this process or another */
    struct cli_kept *kept; /* see cli_name() */
    lh_error err;
};

extern const cli_command *const cli_commands[]; /* ends with NULL */
extern const cli_option cli_common_options[];
extern const uint32_t cli_n_common_options;

/* --- errors ------------------------------------------------------------- */

/* Fills c->err and returns `code`. */
lh_status cli_error(cli *c, lh_status code, const char *format, ...)
    CLI_PRINTF(3, 4);
/* The same for wrong usage: the program will exit with 2. */
lh_status cli_usage(cli *c, const char *format, ...) CLI_PRINTF(2, 3);
lh_status cli_no_memory(cli *c);

#define CLI_TRY(call)                                                          \
    do {                                                                       \
        lh_status cli_try_status = (call);                                     \
        if (cli_try_status != LH_OK)                                           \
            return cli_try_status;                                             \
    } while (0)

/* Refuses a range in --`option` that has no value. */
lh_status cli_range_refuse(cli *c, const char *option, const char *text);

/* The word of `words` (ends with NULL) that `typed` was probably meant to be;
 * NULL: none is near. */
const char *cli_nearest(const char *typed, const char *const *words);

/* --- arguments ---------------------------------------------------------- */

/* Parses argv[first..] into c->settings (c->command->settings_size bytes,
 * zeroed) and c->operands (n_argv pointers of room). */
lh_status cli_parse(cli *c, int argc, char **argv, int first);
/* After cli_parse(): whether the command line has this option of the command's
 * table, of which none has more than 64; its preset does not count. */
bool cli_given(const cli *c, const char *name);
/* After cli_parse(): whether every file that is to be written can be made, and
 * none would be overwritten that nobody named. Hours of work are not to end in
 * "cannot write". */
lh_status cli_check_outputs(cli *c);
/* And whether none of them is another one, or what is read, by whatever name.
 */
lh_status cli_check_same_files(cli *c);
/* The same for a file that an input names. */
lh_status cli_check_named_file(cli *c, const char *path);
/* The file that is written without -o; NULL: none. */
const char *cli_default_output(const cli *c);
/* The option of that name or letter, of the command or common; NULL: none. */
const cli_option *cli_find_long(const cli_command *command, const char *name,
                                size_t len);
const cli_option *cli_find_letter(const cli_command *command, char letter);
const cli_option *cli_find_option(const cli_command *command, const char *name);
/* The i-th word of a CLI_CHOICE; NULL after the last. */
const char *cli_choice(const cli_option *option, uint32_t i);

/* --- pages made from the tables ------------------------------------------ */

void cli_help(FILE *out, const cli_command *command, uint32_t width);
void cli_help_all(FILE *out, uint32_t width);
/* The man page of a command, or of all (NULL). */
void cli_man(FILE *out, const cli_command *command);
/* The completion script for "bash", "zsh" or "fish"; false: another shell. */
bool cli_complete(FILE *out, const char *shell);
/* An option of the command takes such words; methods also where files are
 * taken, too. */
bool cli_names(const cli_command *command, cli_words words);
/* The i-th of methods, engines, models or GPUs; NULL after the last, and of
 * other words. */
const char *cli_word(cli_words words, uint32_t i);
/* What is to be known of it, in `text` or elsewhere. */
#define CLI_ABOUT_TEXT 80
const char *cli_word_about(cli_words words, uint32_t i,
                           char text[CLI_ABOUT_TEXT]);
/* What a list of them is called in help, NULL: it has none. */
const char *cli_words_title(cli_words words);

/* --- output -------------------------------------------------------------- */

/* Text for people. What a %s stands for may come from anywhere: it is shown as
 * lh_text_show() has it, and widths count columns. tools/check-printing.py
 * keeps other ways of printing out of the program. */
void cli_print(cli *c, const char *format, ...) CLI_PRINTF(2, 3);
/* The same on standard error, after the program's name and with an end of
 * line. */
void cli_say(const char *format, ...) CLI_PRINTF(1, 2);
/* A name for JSON and reports, which hold UTF-8 alone: the text itself, or
 * where that is something else what is shown of it, which lives as long as `c`.
 */
const char *cli_name(cli *c, const char *text);
/* Both with a letter between them; lives as long. NULL: no memory. */
const char *cli_join(cli *c, const char *first, char between,
                     const char *second);
void cli_release_names(cli *c);
/* The columns that cli_print() takes for a text. */
size_t cli_columns(const char *text);
/* An empty line and lines that the library drew for a terminal, with colours.
 */
void cli_put_drawn(cli *c, const char *text);
/* What would be a file, as it is: for programs. */
void cli_put_file(cli *c, const char *text, size_t len);
/* The same of a text that the library made, which is released. */
void cli_put_made(cli *c, char *text, size_t len);

/* Prints one JSON object; takes the reference, NULL means no memory. */
lh_status cli_put_json(cli *c, json_t *object);
/* Whole or not at all, and not to be interrupted. */
lh_status cli_write(cli *c, const char *path, const char *text, size_t len);
/* The same of a text that the library handed out, which is released. */
lh_status cli_write_text(cli *c, const char *path, char *text, size_t len);
/* Writes what was gathered; 0 or EXIT_FAILED. */
int cli_write_out(cli *c, const char *text, size_t len);

/* --- signals -------------------------------------------------------------- */

/* From here on the program leaves no half-drawn line behind when a signal ends
 * it, and ends also where it is process 1 of a container. */
void cli_catch_signals(void);
/* Until cli_interrupts_end() an interrupt asks the work to stop; that and the
 * next are what cli_interrupts() counts, which the work looks at. */
typedef enum cli_interrupt {
    CLI_INTERRUPT_ONCE,  /* SIGINT and SIGTERM, which is said on a terminal;
                            another ends the program */
    CLI_INTERRUPT_AGAIN, /* SIGINT, SIGTERM and SIGHUP, twice; a third ends the
                            program */
} cli_interrupt;
/* SIGTERMs and SIGHUPs within 0.2 s of the signal before count once: a job's
 * manager and its launcher may both send one. */
void cli_interrupts_begin(const cli *c, cli_interrupt how);
uint32_t cli_interrupts(void);
/* How many came; cli_interrupts() is 0 again. */
uint32_t cli_interrupts_end(void);
/* Signals that end the program wait until cli_release_signals(), whichever
 * thread they come to. */
void cli_hold_signals(void);
void cli_release_signals(void);

/* --- the terminal --------------------------------------------------------- */

/* Columns of the terminal that standard output is, or of $COLUMNS, or 80. */
uint32_t cli_width(void);
/* Standard output is a terminal that shows colours and nobody objects. */
bool cli_color(const cli *c);
/* The locale's characters go beyond ASCII. */
bool cli_unicode(void);
/* A line on standard error that replaces itself; nothing unless standard error
 * is a terminal, or with --quiet. */
void cli_progress(const cli *c, const char *format, ...) CLI_PRINTF(2, 3);
void cli_progress_end(void);
/* The same from within a signal's handler. */
void cli_progress_wipe(void);
/* A remark on standard error, unless --quiet. */
void cli_note(const cli *c, const char *format, ...) CLI_PRINTF(2, 3);

#endif
