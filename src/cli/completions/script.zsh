#compdef pkcs11-external-signer
# zsh completion of pkcs11-external-signer: the program itself is asked for what may stand here.
_pkcs11-external-signer() {
    local -a lines plain open
    local line value last
    lines=("${(@f)$(${~words[1]} __complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    last=$lines[-1]
    case $last in
        (:command\ *)
            # As of a command of its own.
            shift ${last#:command } words
            (( CURRENT -= ${last#:command } ))
            _normal
            return
            ;;
    esac
    for line in "${(@)lines[1,-2]}"; do
        value=${${line%%$'\t'*}//:/\\:}
        [[ $line == *$'\t'* ]] && value+=:${line#*$'\t'}
        if [[ ${line%%$'\t'*} == *[=:] ]]; then open+=("$value"); else plain+=("$value"); fi
    done
    (( $#plain )) && _describe -V value plain
    (( $#open )) && _describe -V value open -S ''
    if [[ $last == :0 ]]; then
        compset -P '--[a-z-]#='
        compset -P 'file:'
        _files
    fi
}
if [[ $funcstack[1] == _pkcs11-external-signer ]]; then
    _pkcs11-external-signer "$@"
else
    compdef _pkcs11-external-signer pkcs11-external-signer
fi
