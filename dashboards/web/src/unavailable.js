// In the place of a picture that could not be fetched or drawn: that it is missing, why, and a button that asks for it again.

/** Puts the words in the place of a figure's picture. */
export function unavailable(figure, why, again) {
  available(figure);
  const line = document.createElement('p');
  line.className = 'unavailable';
  line.setAttribute('role', 'alert');
  line.textContent = `This picture is missing: ${why}. `;
  const button = line.appendChild(document.createElement('button'));
  button.type = 'button';
  button.textContent = 'try again';
  button.addEventListener('click', () => {
    button.disabled = true;
    again();
  });
  figure.querySelector('.canvas').before(line);
}

/** Takes them away: the picture is there. */
export function available(figure) {
  figure.querySelector('.unavailable')?.remove();
}
