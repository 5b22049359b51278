# bash completion of pkcs11-external-signer: the program itself is asked for what may stand here.
_pkcs11_external_signer() {
    local words=() starts=() word line value last="" glued=false is_break index cword
    COMPREPLY=()
    # Bash parts words at = and :, which options and PIN sources have.
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        is_break=false
        if [[ $word && -z ${word//[=:]/} ]]; then
            is_break=true
        elif ((index == COMP_CWORD)); then
            word=$2
        fi
        word=${word//[\\\"\']/}
        if ((index > 1)) && { $is_break || $glued; }; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
            starts+=("$index")
        fi
        glued=$is_break
    done
    cword=$((${#words[@]} - 1))
    while IFS= read -r line; do
        if [[ $line == :* ]]; then
            last=$line
        else
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <("${1/#\~\//$HOME/}" __complete -- "${words[@]:1}" 2>/dev/null)
    case $last in
        :command*)
            index=${last#:command }
            if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset "${starts[index]}"
            elif declare -F _command_offset >/dev/null; then
                _command_offset "${starts[index]}"
            elif ((index == cword)); then
                COMPREPLY=($(compgen -c -- "$2"))
            else
                compopt -o default 2>/dev/null
            fi
            return
            ;;
        :0) compopt -o default 2>/dev/null ;;
    esac
    # Readline replaces only what it takes for the word, and keeps a quote that was opened.
    value=${2//[\\\"\']/}
    value=${words[cword]%"$value"}
    for index in "${!COMPREPLY[@]}"; do
        word=${COMPREPLY[index]#"$value"}
        [[ $2 == [\"\']* ]] || printf -v word %q "$word"
        COMPREPLY[index]=$word
    done
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _pkcs11_external_signer pkcs11-external-signer
