# fish completion of pkcs11-external-signer: the program itself is asked for what may stand here.
function __pkcs11_external_signer_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l plain (string replace --all --regex '[\\\\"\']' '' -- "$current")
    set -l program $words[1]
    set -l lines (command $program __complete -- $words[2..-1] "$plain" 2>/dev/null)
    set -l last $lines[-1]
    if string match --quiet ':command *' -- "$last"
        # As of a command of its own.
        set -l start (math (string replace ':command ' '' -- $last) + 1)
        set -l line (string escape -- $words[$start..-1])
        complete --do-complete (string join ' ' -- $line "$current")
        return
    end
    string match --invert --regex '^:' -- $lines
    if test "$last" = :0
        set -l prefix (string match --regex '^(?:--[a-z-]+=)?(?:file:)?' -- "$plain")
        set -l path (string replace -- "$prefix" '' "$plain")
        # Fish completes no path with a tilde here, and takes one.
        set -l home (string match --regex '^~(?=/)' -- "$path")
        and set path (string replace '~' "$HOME" -- "$path")
        for file in (__fish_complete_path "$path")
            test -n "$home"; and set file (string replace -- "$HOME" '~' "$file")
            printf '%s\n' "$prefix$file"
        end
    end
end
complete --command pkcs11-external-signer --no-files --keep-order --arguments '(__pkcs11_external_signer_complete)'
