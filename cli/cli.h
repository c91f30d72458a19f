/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the program's framework. Commands and their options are tables, from
 * which parsing, --help, the man pages and shell completion are generated.
 *
 * A command's output is buffered in memory and written at the end, so a failing
 * command leaves standard output empty. */
#ifndef CLI_H
#define CLI_H

#include <longhaul.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses: success; failure; invalid usage. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

/* Type that an option stores in the settings. */
typedef enum cli_type {
    CLI_FLAG,       /* bool */
    CLI_TEXT,       /* const char *, NULL if not given */
    CLI_OUTPUT,     /* const char *: file to write; checked before the command
                     * runs */
    CLI_APPENDED,   /* const char *: file to append to */
    CLI_COUNT,      /* uint32_t, least..most */
    CLI_COUNT64,    /* uint64_t, least..most (0: 2^62); 0 if not given */
    CLI_SEED,       /* uint64_t, any */
    CLI_REAL,       /* double, `low` or more; 0 if not given */
    CLI_REAL_ABOVE, /* double above `low`; 0 if not given */
    CLI_TIME,       /* int64_t, ns; requires a unit, above 0; 0 if not given */
    CLI_TIME_OR_0,  /* int64_t, ns; requires a unit, 0 or more; has a default */
    CLI_CHOICE,     /* uint32_t, index of the choice */
} cli_type;

/* Kind of value that a shell completes an argument with. */
typedef enum cli_words {
    CLI_WORDS_NONE,
    CLI_WORDS_FILES,
    CLI_WORDS_FOLDERS,
    CLI_WORDS_METHODS,
    CLI_WORDS_METHODS_OR_FILES,
    CLI_WORDS_COMMANDS,
    CLI_WORDS_ENGINES, /* engines of the optimal-schedule search */
    CLI_WORDS_MODELS,  /* or files */
    CLI_WORDS_GPUS,
    CLI_N_WORDS
} cli_words;

/* One command-line option. */
typedef struct cli_option {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    cli_type type;
    size_t at;       /* offset into the settings */
    const char *arg; /* argument's name in help; NULL: a flag */
    /* default, parsed before the command line; NULL: none */
    const char *preset;
    const char *help;
    const char
        *example_argument; /* valid example where a unit or format is required;
                            * NULL: any value of the type works */
    uint32_t least, most;  /* CLI_COUNT, CLI_COUNT64 */
    double low, high;      /* CLI_REAL, CLI_REAL_ABOVE; high 0: no limit */
    /* CLI_CHOICE: NULL-terminated words, or a function that returns the i-th
     * word and NULL after the last. */
    const char *const *choices;
    const char *(*choice_name)(uint32_t i);
    cli_words words;
    /* CLI_TEXT: separator that joins repeated values into a list; 0: the last
     * value wins. */
    char list_separator;
} cli_option;

/* Example in the help. */
typedef struct cli_example {
    const char *line; /* command line to type */
    const char *does;
} cli_example;

/* Settings common to all commands. */
typedef struct cli_common {
    bool json, quiet, help, help_all, version;
    const char *output;
    uint64_t seed;
} cli_common;

typedef struct cli cli;

/* One command. */
typedef struct cli_command {
    const char *name;
    const char *operands; /* for help, e.g. "PIPELINE S.csv"; NULL: none */
    uint32_t least_operands, most_operands;
    cli_words operand_words;
    const char *about;       /* one line, no full stop */
    const char *description; /* paragraphs, separated by an empty line */
    const char *output_help; /* effect of -o */
    bool handles_output;     /* the command itself handles -o */
    /* file written without -o and --json; overwritten only if its first 4 KiB
     * contain `default_signature`; NULL: none */
    const char *default_output;
    const char *default_signature;
    bool default_with_json; /* written with --json, too */
    bool writes_links;      /* beside -o FILE: FILE.links.csv */
    /* Called after the command has failed and its error is printed, also if its
     * arguments are invalid; NULL: nothing. */
    void (*failed)(const cli *c);
    bool may_span_hosts; /* hosts may lack the files' folders: the command
                          * itself calls cli_check_outputs() */
    const cli_option *options;
    uint32_t n_options;
    const cli_example *examples;
    uint32_t n_examples;
    size_t settings_size;
    /* Runs the command. Returns LH_OK, or an error with the reason in cli->err.
     * Sets cli->exit_code if the answer is "no" without an error. */
    lh_status (*run)(cli *c);
} cli_command;

#define CLI_COUNT_OF(table) ((uint32_t)(sizeof(table) / sizeof(*(table))))
#define CLI_OPTIONS(table) .options = (table), .n_options = CLI_COUNT_OF(table)
#define CLI_EXAMPLES(table)                                                    \
    .examples = (table), .n_examples = CLI_COUNT_OF(table)

enum { CLI_MOST_OPTIONS = 96 }; /* of a command, without the common ones */

/* State of one program invocation. */
struct cli {
    const cli_command *command;
    cli_common common;
    void *settings;
    uint32_t n_operands;
    char **operands;
    bool given[CLI_MOST_OPTIONS]; /* see cli_is_given() */
    FILE *out;                    /* buffered until the command has succeeded */
    int exit_code;
    bool usage;         /* the error is a usage error */
    bool error_printed; /* the error was printed, by this process or another */
    bool joins_ranks;   /* train: failures from now on reach the other ranks */
    struct cli_owned_text *kept; /* see cli_utf8_name() */
    lh_error err;
};

extern const cli_command *const cli_commands[]; /* NULL-terminated */
extern const cli_option cli_common_options[];
extern const uint32_t cli_n_common_options;

/* --- errors ------------------------------------------------------------- */

/* Formats an error message into c->err and returns `code`. */
lh_status cli_error(cli *c, lh_status code, const char *format, ...)
    CLI_PRINTF(3, 4);
/* Formats a usage error, with which the program exits with status 2. */
lh_status cli_usage(cli *c, const char *format, ...) CLI_PRINTF(2, 3);
/* Fails with LH_ENOMEM: memory is exhausted. */
lh_status cli_no_memory(cli *c);

#define CLI_TRY(call)                                                          \
    do {                                                                       \
        lh_status cli_try_status = (call);                                     \
        if (cli_try_status != LH_OK)                                           \
            return cli_try_status;                                             \
    } while (0)

/* Fails with a usage error: the range in --`option` contains no value. */
lh_status cli_reject_empty_range(cli *c, const char *option, const char *text);

/* Finds the word in the NULL-terminated `words` that `typed` is most similar
 * to; NULL: none is similar. */
const char *cli_find_similar_word(const char *typed, const char *const *words);

/* Maximum word count in cli_find_similar_words(). */
enum { CLI_MOST_SIMILAR = 4 };
/* Finds up to CLI_MOST_SIMILAR of the NULL-terminated `words` by edit distance
 * from `typed`, the most similar first, into the NULL-terminated `out`. Words
 * that are not similar are left out. A word's part before a colon counts only
 * if `typed` has a colon. */
void cli_find_similar_words(const char *typed, const char *const *words,
                            const char *out[CLI_MOST_SIMILAR + 1]);

/* --- arguments ---------------------------------------------------------- */

/* Parses argv[first..] into c->settings (c->command->settings_size bytes,
 * zeroed) and c->operands (capacity: argc pointers). */
lh_status cli_parse(cli *c, int argc, char **argv, int first);
/* Checks whether the command line contains this option, after cli_parse().
 * Presets do not count. A command's table has at most 64 options. */
bool cli_is_given(const cli *c, const char *name);
/* Checks before a long run, after cli_parse(), that every output file can be
 * created, and that a default output would overwrite no other file. */
lh_status cli_check_outputs(cli *c);
/* Checks that no output file is the same file as an input or another output,
 * under any path. */
lh_status cli_check_same_files(cli *c);
/* Checks that no output file is the same file as `path`, to which an input
 * refers. */
lh_status cli_check_named_file(cli *c, const char *path);
/* Returns the file that the command writes without -o; NULL: none. */
const char *cli_default_output(const cli *c);
/* Finds an option by name or letter, among the command's and the common ones;
 * NULL: none. */
const cli_option *cli_find_long(const cli_command *command, const char *name,
                                size_t len);
/* Finds an option by letter; NULL: none. */
const cli_option *cli_find_letter(const cli_command *command, char letter);
/* Finds an option by name; NULL: none. */
const cli_option *cli_find_option(const cli_command *command, const char *name);
/* Returns a CLI_CHOICE's i-th word; NULL after the last. */
const char *cli_choice_word(const cli_option *option, uint32_t i);

/* --- pages generated from the tables ------------------------------------ */

/* A command's options under one heading in its help. */
typedef struct cli_help_group {
    const char *command, *heading;
    const char *options; /* names, separated by a space */
} cli_help_group;
/* Returns the command's i-th group of options in its short help; NULL: no
 * more. A command without groups has all its options in its help. */
const cli_help_group *cli_find_help_group(const char *command, uint32_t i);
/* Prints a command's help, wrapped before `width`: on one screen or, with
 * `all`, all options and the whole description. */
void cli_help(FILE *out, const cli_command *command, bool all, uint32_t width);
/* Prints the program's help with all commands, wrapped before `width`. */
void cli_help_all(FILE *out, uint32_t width);
/* Prints a command's man page, or all pages (NULL). */
void cli_man(FILE *out, const cli_command *command);
/* Prints the completion script for "bash", "zsh" or "fish"; false: unknown
 * shell. */
bool cli_complete(FILE *out, const char *shell);
/* Checks whether an option of the command accepts words of this kind (methods,
 * engines, models or GPUs). Methods also match where files are accepted. */
bool cli_accepts_words(const cli_command *command, cli_words words);
/* Returns the i-th word of a kind that help and completion list: method,
 * engine, model or GPU. NULL after the last and for other kinds. */
const char *cli_word(cli_words words, uint32_t i);
/* Buffer size for cli_word_about(). */
#define CLI_ABOUT_TEXT 80
/* Returns a description of the i-th word of a kind (methods, engines, models or
 * GPUs), in `text` or static storage. */
const char *cli_word_about(cli_words words, uint32_t i,
                           char text[CLI_ABOUT_TEXT]);
/* Returns the title that help prints above a list of words of a kind, such as
 * "Methods"; NULL: none. */
const char *cli_words_title(cli_words words);

/* --- output ------------------------------------------------------------- */

/* Prints text for people. Arguments of %s may be untrusted: lh_text_escape()
 * escapes them, and widths count columns. tools/check-printing.py forbids other
 * ways to print. */
void cli_print(cli *c, const char *format, ...) CLI_PRINTF(2, 3);
/* Prints a line on standard error, after the program's name. */
void cli_print_stderr(const char *format, ...) CLI_PRINTF(1, 2);
/* Returns a name for JSON and reports, which require UTF-8: the text itself, or
 * its escaped form, which is valid as long as `c`. */
const char *cli_utf8_name(cli *c, const char *text);
/* Joins two texts with a character between them; valid as long as `c`. NULL: no
 * memory. */
const char *cli_join(cli *c, const char *first, char between,
                     const char *second);
/* Releases the texts from cli_utf8_name() and cli_join(). */
void cli_release_names(cli *c);
/* Counts the columns in which cli_print() shows a text. */
size_t cli_columns(const char *text);
/* Prints an empty line and a chart that the library drew for a terminal, with
 * colours. */
void cli_put_chart(cli *c, const char *text);
/* Prints the contents of a file verbatim, for output that other programs read.
 * */
void cli_put_raw(cli *c, const char *text, size_t len);
/* Prints a text that the library allocated, verbatim, and frees it. */
void cli_put_owned_text(cli *c, char *text, size_t len);

/* Prints one JSON object; takes the reference. NULL means out of memory. */
lh_status cli_put_json(cli *c, json_t *object);
/* Writes a file atomically, with signals deferred. */
lh_status cli_write(cli *c, const char *path, const char *text, size_t len);
/* Writes a text allocated by the library to a file, and frees it. */
lh_status cli_write_text(cli *c, const char *path, char *text, size_t len);
/* Writes the buffered output to standard output; returns 0 or EXIT_FAILED. */
int cli_write_stdout(cli *c, const char *text, size_t len);

/* --- signals ------------------------------------------------------------ */

/* Installs handlers that erase a partial progress line before a signal ends the
 * program. They also end it when it is process 1 in a container. */
void cli_catch_signals(void);
/* A job manager may signal the launcher and each process, and the launcher
 * forwards the signal: repeats within this time, in nanoseconds, count once.
 * SIGINT is exempt, as it comes from the keyboard. */
#define CLI_DUPLICATE_SIGNAL_NS INT64_C(200000000)
/* Counts interrupts until cli_interrupts_end(). The work polls cli_interrupts()
 * to stop early. */
typedef enum cli_interrupt {
    CLI_INTERRUPT_ONCE,  /* SIGINT and SIGTERM once, noted on a terminal;
                          * another one ends the program */
    CLI_INTERRUPT_AGAIN, /* SIGINT, SIGTERM and SIGHUP, twice; a third one ends
                          * the program */
} cli_interrupt;
/* Starts to count interrupts (Ctrl-C, SIGTERM, SIGHUP) rather than ending the
 * program. `how`: the caller polls for one or for two; the next one ends the
 * program. SIGTERMs and SIGHUPs within 0.2 s after the previous signal count
 * once. */
void cli_interrupts_begin(const cli *c, cli_interrupt how);
/* Returns the number of interrupts (signals such as Ctrl-C) since
 * cli_interrupts_begin(). */
uint32_t cli_interrupts(void);
/* Ends the counting of interrupts begun by cli_interrupts_begin(), and returns
 * their number. */
uint32_t cli_interrupts_end(void);
/* Defers signals that end the program until cli_release_signals(), on every
 * thread. */
void cli_defer_signals(void);
/* Releases deferred signals; a pending one ends the program. */
void cli_release_signals(void);

/* --- terminal ----------------------------------------------------------- */

/* Returns the terminal's width on standard output, or $COLUMNS, or 80. */
uint32_t cli_width(void);
/* Checks whether standard output is a terminal with colours that are not
 * disabled. */
bool cli_color(const cli *c);
/* Checks whether the locale supports characters beyond ASCII. */
bool cli_unicode(void);
/* Prints a progress line on standard error that replaces itself; does nothing
 * with --quiet or if standard error is no terminal. */
void cli_progress(const cli *c, const char *format, ...) CLI_PRINTF(2, 3);
/* Ends the progress line, so that later output starts on a new line. */
void cli_progress_end(void);
/* Erases the progress line; safe within a signal handler. */
void cli_progress_erase(void);
/* Prints a remark on standard error, unless --quiet. */
void cli_note(const cli *c, const char *format, ...) CLI_PRINTF(2, 3);
/* Prints a line on standard output during the run, before the results, unless
 * --quiet is given. Returns false, with errno set, if it cannot be written. */
bool cli_put_now(const cli *c, const char *line);

#endif
